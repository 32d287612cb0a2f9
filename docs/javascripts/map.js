// The map of the lessons: a tick for what this browser has solved (exercise.js), the time left, and what comes next.
import "./follow.js"; // which may have led here

const kept = Object.keys(localStorage);
const count = (start) => kept.filter((key) => key.startsWith(start)).length;
const words = (minutes) => (minutes < 90 ? `${5 * Math.ceil(minutes / 5)} minutes` : `${Math.round(minutes / 60)} hours`);
let [left, solved, next] = [0, 0, null];
for (const card of document.querySelectorAll(".lesson-map a")) {
  const { lesson, exercises, minutes } = card.dataset;
  const right = Math.min(exercises, count(`solved-${lesson}.`));
  // a lesson whose exercises need torch counts when its questions are answered
  const share = Number(exercises) === 0 ? Number(count(`predict-${lesson}`) > 0) : right / exercises;
  solved += right;
  left += minutes * (1 - share);
  card.classList.toggle("lesson-done", share === 1);
  if (share > 0) card.querySelector("strong").append(share === 1 ? " ✓" : ` ${right} of ${exercises} ✓`);
  if (share < 1) next ??= card;
}
const told = document.querySelector(".lesson-next");
if (next !== null) {
  next.classList.add("lesson-now");
  const link = Object.assign(document.createElement("a"), { href: next.href });
  link.textContent = `${solved > 0 ? "Next" : "Start"}: ${next.dataset.lesson}, ${words(next.dataset.minutes)}`;
  told.append(link, solved > 0 ? `. ${solved} exercises solved in this browser, about ${words(left)} left.` : `. All lessons: about ${words(left)}.`);
} else told.textContent = "You have been through all lessons.";
