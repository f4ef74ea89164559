// A text area with line numbers that can mark a line.

import { h } from "./dom.js";

const MOST_ROWS = 20;

export class Editor {
  /** Builds the editor in `box`. `changed` is called after each change by the user. */
  constructor(box, id, changed) {
    this.numbers = h("div", { class: "numbers", "aria-hidden": "true" });
    this.mark = h("div", { class: "mark", hidden: true });
    this.area = h("textarea", {
      id,
      class: "code",
      wrap: "off",
      spellcheck: "false",
      autocomplete: "off",
      autocapitalize: "off",
      "aria-describedby": "check",
      oninput: () => {
        this.draw();
        changed();
      },
      onscroll: () => this.scroll(),
    });
    this.line = 0;
    box.replaceChildren(this.numbers, h("div", { class: "text" }, this.mark, this.area));
  }

  get text() {
    return this.area.value;
  }

  /** Shows another text. */
  set text(text) {
    this.area.value = text;
    this.setError(0);
    this.area.scrollTo(0, 0);
    this.draw();
  }

  /** Marks a line as wrong; 0 marks none. */
  setError(line) {
    this.line = line;
    if (line) this.area.setAttribute("aria-invalid", "true");
    else this.area.removeAttribute("aria-invalid");
    this.draw();
  }

  /** Puts the cursor at a line and column, counted from 1. */
  goTo(line, column) {
    const before = this.text
      .split("\n")
      .slice(0, line - 1)
      .join("\n");
    const at = Math.min(
      this.text.length,
      before.length + (line > 1 ? 1 : 0) + Math.max(0, (column ?? 1) - 1),
    );
    this.area.focus();
    this.area.setSelectionRange(at, at);
    this.area.scrollTop = Math.max(0, (line - 3) * this.lineHeight());
  }

  lineHeight() {
    return parseFloat(getComputedStyle(this.area).lineHeight) || 20;
  }

  draw() {
    const lines = this.text.split("\n").length;
    this.area.rows = Math.min(MOST_ROWS, Math.max(3, lines));
    if (this.numbers.childElementCount !== lines) {
      this.numbers.replaceChildren(
        ...Array.from({ length: lines }, (_, at) => h("span", {}, String(at + 1))),
      );
    }
    Array.from(this.numbers.children).forEach((row, at) => row.classList.toggle("bad", at + 1 === this.line));
    this.scroll();
  }

  scroll() {
    this.numbers.scrollTop = this.area.scrollTop;
    this.mark.hidden = this.line === 0;
    this.mark.style.top = `${8 + (this.line - 1) * this.lineHeight() - this.area.scrollTop}px`;
    this.mark.style.height = `${this.lineHeight()}px`;
  }
}
