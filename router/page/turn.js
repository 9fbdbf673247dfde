// One turn of the conversation: a question, the answer as it comes, what it took and who served it.

import { MarkdownView } from "./markdown.js";

function element(tag, className, text = "") {
  const node = document.createElement(tag);
  node.className = className;
  node.textContent = text;
  return node;
}

function duration(ms) {
  return ms < 1000 ? `${Math.round(ms)} ms` : `${(ms / 1000).toFixed(2)} s`;
}

const ENDINGS = { length: "token limit reached", stopped: "stopped", error: "broken off" };

// The figures of an answer, in the order they are shown: [name, value, explanation].
function figures(turn) {
  const list = [];
  if (turn.ttftMs !== undefined) {
    list.push(["TTFT", duration(turn.ttftMs), "time from sending to the first token, seen from here"]);
  }
  if (turn.tokens > 1 && turn.decodeMs > 0) {
    const rate = ((turn.tokens - 1) * 1000) / turn.decodeMs;
    list.push(["rate", `${rate.toFixed(1)} tokens/s`, "after the first token"]);
  }
  if (turn.tokens > 0) list.push(["answer", `${turn.tokens} tokens`, "generated tokens"]);
  if (turn.promptTokens > 0) {
    const cached = turn.cachedTokens > 0 ? ` (${turn.cachedTokens} cached)` : "";
    list.push(["prompt", `${turn.promptTokens} tokens${cached}`, "prompt tokens, and how many of them a worker still had"]);
  }
  for (const role of ["prefill", "decode"]) {
    const workers = turn.workers?.[role] ?? [];
    if (workers.length > 0) list.push([role, workers.join(", "), `${role} worker`]);
  }
  return list;
}

// Plain data, which is what a reload keeps:
//   {question, answer, finish, error, ttftMs, decodeMs, tokens, promptTokens, cachedTokens, workers}
export function newTurn(question) {
  return { question, answer: "", finish: "", error: "", tokens: 0 };
}

export class TurnView {
  // `actions`: {again(turn)}
  constructor(turn, actions) {
    this.turn = turn;
    this.node = element("article", "turn");
    const question = element("div", "question", turn.question);
    this.answer = element("div", "answer");
    this.error = element("p", "error");
    this.error.setAttribute("role", "alert");
    this.stats = element("dl", "stats");
    this.tools = element("div", "tools");
    this.again = this.button("Try again", () => actions.again(turn));
    if (navigator.clipboard) {
      this.copy = this.button("Copy", () => navigator.clipboard.writeText(turn.answer));
    }
    this.node.append(
      element("h2", "sr-only", "You"), question,
      element("h2", "sr-only", "Model"), this.answer, this.error, this.stats, this.tools);
    this.markdown = new MarkdownView(this.answer);
    this.update(false);
  }

  button(label, action) {
    const node = element("button", "small", label);
    node.type = "button";
    node.addEventListener("click", action);
    this.tools.append(node);
    return node;
  }

  // Shows the turn's data as they are now.
  update(running) {
    const { turn } = this;
    this.markdown.show(turn.answer);
    this.answer.setAttribute("aria-busy", String(running));
    this.answer.classList.toggle("waiting", running && turn.answer === "");
    this.answer.hidden = !running && turn.answer === "";
    this.error.hidden = !turn.error;
    if (this.error.textContent !== turn.error) this.error.textContent = turn.error;
    this.tools.hidden = running;
    if (this.copy) this.copy.hidden = turn.answer === "";
    const shown = running ? [] : figures(turn).map((figure) => this.figure(...figure));
    if (!running && turn.answer && ENDINGS[turn.finish]) {
      shown.push(this.figure("end", ENDINGS[turn.finish], "why the answer ends here"));
    }
    this.stats.replaceChildren(...shown);
  }

  figure(name, value, explanation) {
    const node = element("div", "");
    node.title = explanation;
    node.dataset.figure = name;
    node.append(element("dt", "", name), element("dd", "", value));
    return node;
  }
}
