// Sends the query in the page's address to the server, and shows the result.
// Text from the server is inserted as textContent, never as HTML.
"use strict";

const FIRST = 24;
const SVG = "http://www.w3.org/2000/svg";
const at = (id) => document.getElementById(id);
let about = null;
let asked = new AbortController();

/** Makes an element with attributes and children, strings or elements. */
function make(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    made.setAttribute(key, value);
  }
  made.append(...children);
  return made;
}

/** Returns the address of the page with a query. */
function address(question) {
  const search = new URLSearchParams(question).toString();
  return search ? `/?${search}` : "/";
}

/** Sends a query to the server; throws an error if the server reports one. */
async function ask(path, question = [], options = {}) {
  const signal = options.signal || asked.signal;
  let answer;
  try {
    answer = await fetch(
      `${path}?${new URLSearchParams(question)}`, { ...options, signal });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("The server does not respond. Is tbnets demo running?");
  }
  const found = await answer.json();
  if (!answer.ok) throw new Error(found.error);
  return found;
}

const count = (number, thing) =>
  `${number.toLocaleString("en")} ${thing}${number === 1 ? "" : "s"}`;
const shown = (similarity) => similarity.toFixed(3);

/** Shows models, folder and progress; returns whether photos are unread. */
async function tellAbout() {
  const signal = new AbortController().signal;
  about = await ask("/about", [], { signal });
  const boxes = about.finds_boxes ? `, boxes from ${about.localizer}` : "";
  at("about").textContent =
    `${count(about.photos, "photo")} in ${about.folder}, searched by ` +
    `${about.model}${boxes}`;
  const left = about.read < about.photos;
  at("reading").hidden = !left;
  at("progress").max = about.photos;
  at("progress").value = about.read;
  at("reading").lastElementChild.textContent =
    `embedding photos: ${about.read.toLocaleString("en")} so far`;
  at("find").hidden = !about.finds_boxes;
  at("phrases").placeholder = about.phrases;
  return left;
}

/** Shows the progress until all photos are read; returns whether they are. */
async function follow() {
  try {
    while (await tellAbout()) {
      await new Promise((done) => setTimeout(done, 1000));
    }
    return true;
  } catch (error) {
    tellError(error);
    return false;
  }
}

function tellError(error) {
  if (error.name === "AbortError") return;
  at("error").textContent = error.message;
  at("status").textContent = "";
}

/** Shows the photos that were found. */
function showPhotos(answers) {
  const sentence = new URLSearchParams(location.search).get("q");
  const cards = answers.map(({ image, similarity }, row) => {
    const facts = similarity === undefined ? "" :
      make("span", { class: "facts" },
        make("span", { class: "rank" }, `${row + 1}`), " ",
        make("span", { class: "similarity" }, shown(similarity)));
    const picture = make("img", {
      alt: "", loading: "lazy",
      src: `/picture?${new URLSearchParams({ photo: image, side: 400 })}`,
    });
    picture.addEventListener("error", () =>
      picture.replaceWith(make("span", { class: "missing" }, "no photo")));
    // Line breaks in long names: after / _ - and before the ending.
    const parts = image.split(/(?<=[/_-])|(?=\.[^.]*$)/);
    const name = make("span", { class: "name" },
      ...parts.flatMap((part) => [part, make("wbr")]));
    const href = address(sentence ? { q: sentence, photo: image }
      : { photo: image });
    return make("li", {}, make("a", { href }, picture, facts, " ", name));
  });
  at("found").replaceChildren(...cards);
}

/** Finds and shows photos; returns a line about the result. */
async function findPhotos(path, question, title) {
  const top = question.get("top") || FIRST;
  const asks = new URLSearchParams(question);
  asks.set("top", top);
  const found = await ask(path, asks);
  at("photos").hidden = false;
  at("photos-title").textContent = title;
  at("note").textContent = found.note || "";
  at("score").textContent = about.score;
  showPhotos(found.answers);
  const number = found.answers.length;
  at("more").hidden = number < top || number >= found.among || number >= 240;
  if (!found.among) return "No photo has been embedded yet. Wait a moment.";
  return `The best ${count(number, "photo")} of ` +
    `${found.among.toLocaleString("en")}.`;
}

/** Shows some of the photos if there is no query. */
function showSome() {
  at("photos-title").textContent = "Or open one of the photos";
  at("note").textContent = at("score").textContent = "";
  at("more").hidden = true;
  at("photos").hidden = false;
  showPhotos(about.some.map((image) => ({ image })));
}

const nameOf = (key) => (key.startsWith("uploaded ") ? "Your photo" : key);

/** Shows a photo, dark where it does not match if the button is pressed. */
function showPhoto(key, sentence) {
  const name = nameOf(key);
  at("photo-title").textContent = name;
  at("explain").hidden = !(sentence && about.explains);
  at("explain").textContent =
    `Show where the photo matches \u201c${sentence}\u201d`;
  const explains = !at("explain").hidden &&
    at("explain").getAttribute("aria-pressed") === "true";
  const asks = { photo: key, side: 1280, ...(explains && { q: sentence }) };
  const src = `/picture?${new URLSearchParams(asks)}`;
  const before = at("frame").querySelector("img");
  if (!before || before.getAttribute("src") !== src) {
    const picture = make("img", { src, alt: `the photo ${name}` });
    picture.addEventListener("load", () => {
      const { naturalWidth: width, naturalHeight: height } = picture;
      at("frame").style.maxWidth = `${70 * width / height}vh`;
    });
    if (before) before.remove();
    at("frame").prepend(picture);
  }
  at("photo").hidden = false;
}

async function findCaptions(question, own) {
  const lines = own.map((line) => ["caption", line]);
  const asks = [["photo", question.get("photo")], ...lines];
  const found = await ask("/captions", asks);
  const whose = own.length ? "your " : "";
  at("captions-about").textContent =
    `The best of ${whose}${count(found.among, "caption")}. Click a caption ` +
    `to search for photos. ${about.score}`;
  at("captions").replaceChildren(
    ...found.answers.map(({ caption, similarity }) =>
      make("li", {},
        make("a", { href: address({ q: caption }) }, caption),
        make("span", { class: "similarity" }, shown(similarity)))));
}

/** Draws a numbered box; it is dashed if a similar box was drawn before. */
function drawBox(box, size, row, drawn) {
  const colour = about.colours[row % about.colours.length];
  const part = box.map((edge, side) => 100 * edge / size[side % 2]);
  const [left, top, right, bottom] = part;
  const alike = drawn.filter((other) =>
    other.every((edge, side) => Math.abs(edge - part[side]) < 2)).length;
  drawn.push(part);
  const group = document.createElementNS(SVG, "g");
  const place = {
    x: `${left}%`, y: `${top}%`,
    width: `${right - left}%`, height: `${bottom - top}%`,
  };
  const add = (name, attributes) => {
    const made = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) {
      made.setAttribute(key, value);
    }
    group.append(made);
    return made;
  };
  if (!alike) add("rect", { ...place, class: "casing" });
  const dashes = alike ? { "stroke-dasharray": "9 9" } : {};
  add("rect", { ...place, class: "line", stroke: colour, ...dashes });
  // The number of the phrase is in the corner; it is moved for similar boxes.
  const corner = { x: place.x, y: place.y };
  const moved = `translate(${25 * alike} ${top < 6 ? 0 : -22})`;
  add("rect", {
    ...corner, width: 24, height: 22, class: "badge-ground", transform: moved,
  }).style.fill = colour;
  const dark = colour === "#0072b2" ? "#fff" : "#000";
  add("text", {
    ...corner, dx: 12, dy: 16.5, fill: dark, transform: moved,
  }).textContent = `${row + 1}`;
  return group;
}

/** Shows only the boxes of one phrase, or again all boxes. */
function showAlone(button, group, groups) {
  const alone = button.getAttribute("aria-pressed") === "false";
  for (const other of at("legend").querySelectorAll("button")) {
    other.setAttribute("aria-pressed", alone && other === button);
  }
  for (const one of groups) {
    one.classList.toggle("dim", alone && !group.includes(one));
  }
}

/** Shows the boxes of phrases, and a legend of their colours. */
async function findBoxes(key, phrases) {
  const asks = phrases.map((phrase) => ["phrase", phrase]);
  const found = await ask("/boxes", [["photo", key], ...asks]);
  const size = [found.width, found.height];
  const groups = [];
  const drawn = [];
  const items = found.phrases.map(({ phrase, note, regions }, row) => {
    const group = regions.map((one) => drawBox(one.box, size, row, drawn));
    groups.push(...group);
    const colour = about.colours[row % about.colours.length];
    const badge = make("span", { class: "badge" }, `${row + 1}`);
    badge.style.background = colour;
    badge.style.color = colour === "#0072b2" ? "#fff" : "#000";
    const words = make("span", {}, phrase);
    if (note) words.append(make("small", {}, note));
    const score = regions.length ? shown(regions[0].similarity) : "no box";
    const button = make("button",
      { type: "button", "aria-pressed": "false", title: "show only this box" },
      badge, words, make("span", { class: "similarity" }, score));
    const show = () => showAlone(button, group, groups);
    button.addEventListener("click", show);
    return make("li", {}, button);
  });
  at("boxes").replaceChildren(...groups);
  at("legend").replaceChildren(...items);
  at("legend-about").textContent = about.box_score;
  return `${groups.length} ${groups.length === 1 ? "box" : "boxes"} for ` +
    `${count(phrases.length, "phrase")}.`;
}

/** Finds the boxes, captions and similar photos of a photo. */
async function askPhoto(question) {
  const key = question.get("photo");
  const phrases = question.getAll("phrase");
  const own = question.getAll("caption");
  showPhoto(key, question.get("q"));
  at("boxes").replaceChildren();
  at("legend").replaceChildren();
  at("legend-about").textContent = "";
  const told = [];
  if (phrases.length) told.push(await findBoxes(key, phrases));
  await findCaptions(question, own);
  if (about.finds_like) {
    told.push(await findPhotos("/like", question, "Similar photos"));
  }
  return told.join(" ");
}

/** Fills the forms from the page's address. */
function fill() {
  const question = new URLSearchParams(location.search);
  at("sentence").value = question.get("q") || "";
  at("phrases").value = question.getAll("phrase").join(", ");
  at("own-captions").value = question.getAll("caption").join("\n");
}

/** Shows the results of the query in the page's address. */
async function show() {
  asked.abort();
  asked = new AbortController();
  const { signal } = asked;
  const question = new URLSearchParams(location.search);
  const sentence = question.get("q");
  const key = question.get("photo");
  at("error").textContent = "";
  at("status").textContent = sentence || key ? "Searching\u2026" : "";
  at("answer").setAttribute("aria-busy", "true");
  if (!key) at("photo").hidden = true;
  at("examples").hidden = Boolean(key || sentence);
  const title = (key && nameOf(key)) || sentence;
  document.title = title ? `${title} \u2013 tbnets demo` : "tbnets demo";
  try {
    let told = "";
    if (key) told = await askPhoto(question);
    else if (sentence) {
      told = await findPhotos(
        "/search", question, `Photos for \u201c${sentence}\u201d`);
    } else showSome();
    at("status").textContent = told;
  } catch (error) {
    if (signal.aborted) return;
    tellError(error);
    if (!at("found").childElementCount) at("photos").hidden = true;
  }
  if (!signal.aborted) at("answer").removeAttribute("aria-busy");
}

/** Runs a query; moves the focus to the result if `moves`. */
async function go(question, moves = false) {
  history.pushState(null, "", address(question));
  fill();
  const shows = show();
  if (!moves) return;
  scrollTo(0, 0);
  const isOfPhoto = new URLSearchParams(question).has("photo");
  if (!isOfPhoto) await shows;
  at(isOfPhoto ? "photo-title" : "photos-title").focus({ preventScroll: true });
}

/** Uploads a file to the server, and shows its results. */
async function give(file) {
  if (!file || !about) return;
  at("error").textContent = "";
  try {
    if (file.size > about.most_bytes) {
      const most = Math.floor(about.most_bytes / 2 ** 20);
      throw new Error(`A photo may have at most ${most} MB.`);
    }
    at("status").textContent = "Reading the photo\u2026";
    const { signal } = new AbortController();
    const options = { method: "POST", body: file, signal };
    const { photo } = await ask("/photos", [], options);
    await go({ photo }, true);
  } catch (error) {
    tellError(error);
  }
}

function pairs(name, texts) {
  return texts.map((text) => text.trim()).filter(Boolean)
    .map((text) => [name, text]);
}

/** Queries the current photo with new texts of one kind. */
function askAgain(name, texts) {
  const kept = [...new URLSearchParams(location.search)]
    .filter(([key]) => key !== name && key !== "top");
  const question = [...kept, ...pairs(name, texts)];
  if (question.length > kept.length) go(question);
}

at("search").addEventListener("submit", (event) => {
  event.preventDefault();
  const sentence = at("sentence").value.trim();
  if (sentence) go({ q: sentence });
});
at("find").addEventListener("submit", (event) => {
  event.preventDefault();
  askAgain("phrase", at("phrases").value.split(/[,;]/));
});
at("explain").addEventListener("click", () => {
  const button = at("explain");
  const pressed = button.getAttribute("aria-pressed") === "true";
  button.setAttribute("aria-pressed", !pressed);
  const question = new URLSearchParams(location.search);
  showPhoto(question.get("photo"), question.get("q"));
});
at("own").addEventListener("submit", (event) => {
  event.preventDefault();
  askAgain("caption", at("own-captions").value.split("\n"));
});
at("more").addEventListener("click", async () => {
  const question = new URLSearchParams(location.search);
  const before = at("found").childElementCount;
  question.set("top", 2 * before);
  history.replaceState(null, "", address(question));
  await show();
  const next = at("found").children[before];
  if (next) next.firstElementChild.focus();
});
at("file").addEventListener("change", () => {
  give(at("file").files[0]);
  at("file").value = "";
});
document.addEventListener("click", (event) => {
  const link = event.target.closest("a[href^='/']");
  const plain = !event.ctrlKey && !event.metaKey && !event.shiftKey;
  if (!link || event.button || !plain) return;
  event.preventDefault();
  const question = new URL(link.href).search;
  go(question, question !== "");
  if (!question) at("sentence").focus();
});
document.addEventListener("paste", (event) => {
  if (event.clipboardData.files.length) give(event.clipboardData.files[0]);
});
const hasFile = (event) => event.dataTransfer.types.includes("Files");
document.addEventListener("dragover", (event) => {
  if (!hasFile(event)) return;
  event.preventDefault();
  document.body.classList.add("dropping");
});
document.addEventListener("dragleave", (event) => {
  if (!event.relatedTarget) document.body.classList.remove("dropping");
});
document.addEventListener("drop", (event) => {
  document.body.classList.remove("dropping");
  if (!hasFile(event)) return;
  event.preventDefault();
  give(event.dataTransfer.files[0]);
});
addEventListener("popstate", () => {
  fill();
  show();
});

(async () => {
  let isReading;
  try {
    isReading = await tellAbout();
  } catch (error) {
    tellError(error);
    return;
  }
  const links = about.examples.map((text) =>
    make("a", { href: address({ q: text }) }, text));
  at("examples").append(...links);
  if (location.search) fill();
  await show();
  if (isReading && await follow()) show();
})();
