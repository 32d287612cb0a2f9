// docs/finish.py writes this into every page, before the theme's script, which asks for the search and its index at once.
// Here they come when somebody searches, or arrives with words to search or to mark: they are half of a first visit.
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
  // the worker's first message brings the index: only then is its script loaded
  const later = (script) =>
    `onmessage = ({ data }) => {
      onmessage = null;
      importScripts("${script}");
      dispatchEvent(new MessageEvent("message", { data }));
    }`;
  window.Worker = class extends Worker {
    constructor(address, options) {
      const search = /workers\/search[^/]*$/.test(address) && later(new URL(address, document.baseURI));
      super(search ? URL.createObjectURL(new Blob([search], { type: "text/javascript" })) : address, options);
    }
  };
}
