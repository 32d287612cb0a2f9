// docs/finish.py writes this into every page, before the theme's script, which asks for the index of the search at once.
// Here it is asked for when somebody searches, or comes with words to search or to mark: it is half of a first visit.
{
  const wanted = new Promise((done) => {
    if (/[?&][hq]=/.test(location.search)) done();
    addEventListener("focusin", ({ target }) => target.closest("[data-md-component=search]") && done());
  });
  const { open, send } = XMLHttpRequest.prototype;
  XMLHttpRequest.prototype.open = function (method, address) {
    if (address.endsWith("search_index.json")) this.send = () => wanted.then(() => send.call(this));
    open.call(this, method, address);
  };
}
