// The part of Markdown that models write, as DOM nodes: fences, headings, lists, quotes, rules, code,
// bold, italics, links. The model's text only ever becomes text nodes, never markup.

const FENCE = /^ {0,3}(```+|~~~+)\s*([\w+#.-]*)/;
const HEADING = /^(#{1,6})\s+(.*)$/;
const ITEM = /^(\s*)([-*+]|\d{1,9}[.)])\s+(.*)$/;
const QUOTE = /^> ?/;
const RULE = /^ {0,3}([-*_])(\s*\1){2,}\s*$/;
const INLINE =
  /(`+)([^`]|[^`][^]*?[^`])\1(?!`)|\*\*(\S(?:[^]*?\S)?)\*\*|(?<![\w*])\*(\S(?:[^*]*?\S)?)\*(?![\w*])|\[([^\]]+)\]\((https?:\/\/[^\s)]+)\)/;

function element(tag, ...children) {
  const node = document.createElement(tag);
  node.append(...children);
  return node;
}

function inline(text) {
  const nodes = [];
  for (let match; (match = INLINE.exec(text)); ) {
    nodes.push(text.slice(0, match.index));
    const [whole, , code, bold, italic, label, url] = match;
    if (code !== undefined) nodes.push(element("code", code));
    else if (bold !== undefined) nodes.push(element("strong", ...inline(bold)));
    else if (italic !== undefined) nodes.push(element("em", ...inline(italic)));
    else nodes.push(link(label, url));
    text = text.slice(match.index + whole.length);
  }
  nodes.push(text);
  return nodes;
}

function link(label, url) {
  const node = element("a", ...inline(label));
  node.href = url;
  node.target = "_blank";
  node.rel = "noopener noreferrer";
  return node;
}

// Cuts text into blocks: a fence with all that is inside, or lines up to an empty one.
export function splitBlocks(text) {
  const blocks = [];
  let lines = [];
  let fence = "";
  const close = () => {
    if (lines.length > 0) blocks.push(lines.join("\n"));
    lines = [];
  };
  for (const line of text.split("\n")) {
    const mark = FENCE.exec(line)?.[1] ?? "";
    if (fence) {
      lines.push(line);
      if (mark.startsWith(fence) && line.trim() === mark) {
        close();
        fence = "";
      }
    } else if (mark) {
      close();
      lines.push(line);
      fence = mark;
    } else if (line.trim() === "") {
      close();
    } else {
      if (HEADING.test(line)) close();
      lines.push(line);
      if (HEADING.test(line)) close();
    }
  }
  close();
  return blocks;
}

function codeBlock(lines, language) {
  const last = lines.at(-1);
  const body = lines.length > 1 && FENCE.test(last) ? lines.slice(1, -1) : lines.slice(1);
  const pre = element("pre", element("code", body.join("\n")));
  pre.tabIndex = 0; // so that it can be scrolled by keyboard
  if (language) pre.dataset.language = language;
  return pre;
}

// Items by indentation: a deeper one opens a list inside the item before it.
function list(lines) {
  const root = element("div");
  const open = [];
  for (const line of lines) {
    const [, indent, mark, text] = ITEM.exec(line) ?? [];
    if (mark === undefined) {
      open.at(-1).list.lastChild.append("\n", ...inline(line.trim()));
      continue;
    }
    while (open.length > 0 && open.at(-1).indent > indent.length) open.pop();
    if (open.length === 0 || open.at(-1).indent < indent.length) {
      const node = element(/\d/.test(mark) ? "ol" : "ul");
      if (node.tagName === "OL") node.start = parseInt(mark, 10);
      (open.at(-1)?.list.lastChild ?? root).append(node);
      open.push({ indent: indent.length, list: node });
    }
    open.at(-1).list.append(element("li", ...inline(text)));
  }
  return root;
}

function renderBlock(block) {
  const lines = block.split("\n");
  const fence = FENCE.exec(lines[0]);
  if (fence) return codeBlock(lines, fence[2]);
  const heading = HEADING.exec(lines[0]);
  if (heading) return element(`h${Math.min(6, heading[1].length + 2)}`, ...inline(heading[2]));
  if (lines.length === 1 && RULE.test(lines[0])) return element("hr");
  if (lines.every((line) => QUOTE.test(line))) {
    const inner = lines.map((line) => line.replace(QUOTE, "")).join("\n");
    return element("blockquote", ...splitBlocks(inner).map(renderBlock));
  }
  const first = lines.findIndex((line) => ITEM.test(line));
  if (first === 0) return list(lines);
  if (first > 0) {
    const before = element("p", ...inline(lines.slice(0, first).join("\n")));
    return element("div", before, list(lines.slice(first)));
  }
  return element("p", ...inline(block));
}

// Shows a text that grows: only blocks that have changed are made anew.
export class MarkdownView {
  constructor(container) {
    this.container = container;
    this.blocks = [];
  }

  show(text) {
    const blocks = splitBlocks(text);
    const same = blocks.findIndex((block, i) => block !== this.blocks[i]);
    const keep = same < 0 ? blocks.length : same;
    while (this.container.childNodes.length > keep) this.container.lastChild.remove();
    this.container.append(...blocks.slice(keep).map(renderBlock));
    this.blocks = blocks;
  }
}
