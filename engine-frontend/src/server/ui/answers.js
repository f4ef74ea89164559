// The answers of this page, with the trace of each. Chat writes them, Watch shows them.

/** Emits `new` with an answer, `more` when tokens were added to one, `gone` when one was never begun. */
class Answers extends EventTarget {
  list = [];

  add(prompt, fields) {
    const answer = { prompt, fields, trace: [], isLive: true };
    this.list.push(answer);
    this.dispatchEvent(new CustomEvent("new", { detail: answer }));
    return answer;
  }

  addTrace(answer, entries) {
    if (!entries?.length) return;
    answer.trace.push(...entries);
    this.dispatchEvent(new CustomEvent("more", { detail: answer }));
  }

  /** Ends an answer. One without a token, such as a refused request's, is forgotten. */
  end(answer) {
    answer.isLive = false;
    if (answer.trace.length === 0) {
      this.list.splice(this.list.indexOf(answer), 1);
      this.dispatchEvent(new Event("gone"));
      return;
    }
    this.dispatchEvent(new CustomEvent("more", { detail: answer }));
  }
}

export const answers = new Answers();
