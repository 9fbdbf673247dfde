// The settings form: what goes into a request, kept over a reload. The API key lives only as long as
// the tab does.

const byId = (id) => document.getElementById(id);
const NUMBERS = { temperature: "temperature", "top-p": "top_p", "max-tokens": "max_tokens", seed: "seed" };
const KEPT = ["system", ...Object.keys(NUMBERS), "theme"];
const STORE = "baton.settings";
const KEY_STORE = "baton.api-key";

// Storage can be forbidden or full; the page works without.
export function load(storage, name) {
  try {
    return JSON.parse(window[storage].getItem(name));
  } catch {
    return null;
  }
}

export function store(storage, name, value) {
  try {
    window[storage].setItem(name, JSON.stringify(value));
  } catch {
    // Nothing depends on it.
  }
}

export class Settings {
  constructor() {
    this.form = byId("settings");
    this.toggle = byId("settings-toggle");
    const kept = load("localStorage", STORE) ?? {};
    for (const id of KEPT) byId(id).value = kept[id] ?? "";
    byId("api-key").value = load("sessionStorage", KEY_STORE) ?? "";
    this.applyTheme();
    this.form.addEventListener("input", () => this.changed());
    this.form.addEventListener("submit", (event) => event.preventDefault());
    this.toggle.addEventListener("click", () => this.open(this.form.hidden));
    byId("settings-reset").addEventListener("click", () => this.reset());
  }

  open(shown) {
    this.form.hidden = !shown;
    this.toggle.setAttribute("aria-expanded", String(shown));
  }

  // The focus goes back to the button if it would be lost with the form.
  close() {
    if (this.form.contains(document.activeElement)) this.toggle.focus();
    this.open(false);
  }

  // Brings the key's field to the user.
  askForKey() {
    this.open(true);
    byId("api-key").focus();
  }

  changed() {
    store("localStorage", STORE, Object.fromEntries(KEPT.map((id) => [id, byId(id).value])));
    store("sessionStorage", KEY_STORE, this.key());
    this.applyTheme();
  }

  reset() {
    for (const id of KEPT) byId(id).value = "";
    this.changed();
  }

  applyTheme() {
    document.documentElement.dataset.theme = byId("theme").value;
  }

  key() {
    return byId("api-key").value.trim();
  }

  // False, with the field shown that is wrong.
  valid() {
    if (this.form.checkValidity()) return true;
    this.open(true);
    this.form.reportValidity();
    return false;
  }

  system() {
    return byId("system").value.trim();
  }

  // Fields of the request; what is empty is left to the server.
  sampling() {
    const fields = {};
    for (const [id, name] of Object.entries(NUMBERS)) {
      if (byId(id).value !== "") fields[name] = Number(byId(id).value);
    }
    return fields;
  }
}
