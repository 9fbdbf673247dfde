// The page's one state machine: at most one answer is under way; it is sent, shown as it comes,
// stopped, and kept over a reload of the tab.

import { ApiError, listModels, streamChat } from "./stream.js";
import { Settings, load, store } from "./settings.js";
import { TurnView, newTurn } from "./turn.js";

const STORE = "baton.turns";
const byId = (id) => document.getElementById(id);

const settings = new Settings();
const model = byId("model");
const question = byId("question");
const scroller = byId("scroller");

let turns = [];
let views = [];
let running = null; // AbortController of the answer under way

function say(text) {
  byId("status").textContent = text;
}

// --- Models

async function showModels() {
  try {
    const models = await listModels(settings.key());
    model.replaceChildren(...models.map(({ id }) => new Option(id, id)));
    model.disabled = false;
    const context = models[0]?.max_model_len;
    byId("model-facts").textContent = context > 0 ? `${models[0].id}, context of ${context} tokens` : "";
  } catch (error) {
    model.replaceChildren(new Option("no model", ""));
    model.disabled = true;
    byId("model-facts").textContent = explain(error);
    if (error.status === 401) settings.askForKey();
  }
}

// --- Conversation

function atBottom() {
  return scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight < 60;
}

function addView(turn) {
  const view = new TurnView(turn, { again });
  views.push(view);
  byId("turns").append(view.node);
  byId("empty").hidden = true;
  return view;
}

function removeFrom(index) {
  for (const view of views.splice(index)) view.node.remove();
  turns.splice(index);
  byId("empty").hidden = turns.length > 0;
}

function keep() {
  store("sessionStorage", STORE, turns);
}

// The messages of a request: questions without an answer stay out, but for the last one.
function messagesFor(turn) {
  const system = settings.system();
  const messages = system ? [{ role: "system", content: system }] : [];
  for (const earlier of turns.slice(0, turns.indexOf(turn))) {
    if (earlier.answer === "") continue;
    messages.push({ role: "user", content: earlier.question }, { role: "assistant", content: earlier.answer });
  }
  return [...messages, { role: "user", content: turn.question }];
}

function explain(error) {
  if (error.status === 401) return `${error.message}. Put a key into the settings and try again.`;
  if (error.retryAfterS > 0) return `${error.message} (try again in ${error.retryAfterS} s)`;
  return error.message;
}

// --- One answer

function take(turn, chunk, sentMs) {
  const nowMs = performance.now();
  if (chunk.usage) {
    turn.tokens = chunk.usage.completion_tokens;
    turn.promptTokens = chunk.usage.prompt_tokens;
    turn.cachedTokens = chunk.usage.prompt_tokens_details?.cached_tokens ?? 0;
  }
  if (chunk.workers) turn.workers = chunk.workers;
  const choice = chunk.choices?.[0];
  if (!choice) return;
  if (choice.finish_reason) turn.finish = choice.finish_reason;
  if (!choice.delta?.content && !choice.finish_reason) return;
  turn.ttftMs ??= nowMs - sentMs;
  turn.decodeMs = nowMs - sentMs - turn.ttftMs;
  turn.answer += choice.delta?.content ?? "";
}

function setRunning(controller) {
  running = controller;
  byId("send").hidden = running !== null;
  byId("stop").hidden = running === null;
}

// Draws at most once a frame, however fast the tokens come.
function painter(view) {
  let asked = false;
  return () => {
    if (asked) return;
    asked = true;
    requestAnimationFrame(() => {
      asked = false;
      const follow = atBottom();
      view.update(running !== null && views.at(-1) === view);
      if (follow) scroller.scrollTop = scroller.scrollHeight;
    });
  };
}

async function run(turn) {
  const view = addView(turn);
  const paint = painter(view);
  const controller = new AbortController();
  setRunning(controller);
  view.update(true);
  scroller.scrollTop = scroller.scrollHeight;
  say("Waiting for the answer");
  try {
    const body = { model: model.value, messages: messagesFor(turn), ...settings.sampling() };
    const sentMs = performance.now();
    for await (const chunk of streamChat(body, settings.key(), controller.signal)) {
      take(turn, chunk, sentMs);
      paint();
    }
  } catch (error) {
    turn.finish = error.name === "AbortError" ? "stopped" : "error";
    if (turn.finish === "error") turn.error = explain(error);
    if (error.status === 401) settings.askForKey();
    if (!(error instanceof ApiError) && turn.finish === "error") console.error(error);
  }
  setRunning(null);
  paint();
  say(turn.error || (turn.finish === "stopped" ? "Stopped" : "The answer is complete"));
  keep();
}

function again(turn) {
  if (running || !settings.valid()) return;
  removeFrom(turns.indexOf(turn));
  begin(turn.question);
}

function begin(text) {
  const turn = newTurn(text);
  turns.push(turn);
  run(turn);
}

function send() {
  const text = question.value.trim();
  if (running || text === "" || !settings.valid()) return;
  question.value = "";
  grow();
  begin(text);
}

function stop() {
  running?.abort();
}

// --- Controls

function grow() {
  question.style.height = "auto";
  question.style.height = `${question.scrollHeight + 2}px`;
}

byId("composer").addEventListener("submit", (event) => {
  event.preventDefault();
  send();
});
byId("stop").addEventListener("click", () => {
  stop();
  question.focus();
});
byId("new-chat").addEventListener("click", () => {
  stop();
  removeFrom(0);
  keep();
  question.focus();
});
byId("api-key").addEventListener("change", showModels);
question.addEventListener("input", grow);
question.addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  send();
});
document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape") return;
  if (running) stop();
  else settings.close();
});

turns = load("sessionStorage", STORE) ?? [];
for (const turn of turns) addView(turn);
scroller.scrollTop = scroller.scrollHeight;
showModels();
