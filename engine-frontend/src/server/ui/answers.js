// The answers of this page, with the trace of each. Chat writes them, Watch shows them.

/** Emits `new` with an answer, and `more` when tokens were added to one. */
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

  end(answer) {
    answer.isLive = false;
    this.dispatchEvent(new CustomEvent("more", { detail: answer }));
  }
}

export const answers = new Answers();
