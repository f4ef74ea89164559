// Where the values of a JSON text stand: the line of a JSON pointer, and of a syntax error.

/** Line and column (from 1) of an index into a text. */
export function placeAt(text, index) {
  const before = text.slice(0, index);
  const line = before.split("\n").length;
  return { line, column: index - before.lastIndexOf("\n") };
}

/**
 * Reads a JSON text. Returns `{places}`, a map from pointers (`/properties/a`) to indices, or `{error}`
 * with message, line and column. A member's place is that of its name.
 */
export function readJson(text) {
  const places = new Map();
  let at = 0;

  const fail = (message, index = at) => {
    throw Object.assign(new Error(message), { index });
  };
  const skip = () => {
    while (at < text.length && " \t\n\r".includes(text[at])) at += 1;
  };
  const found = () => (at < text.length ? `not ${JSON.stringify(text[at])}` : "and the text ends here");
  const string = () => {
    const start = at;
    const literal = /"(?:[^"\\\u0000-\u001f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"/y;
    literal.lastIndex = at;
    const match = literal.exec(text);
    if (!match) fail("this string doesn't end, or has a character that must be escaped", start);
    at = literal.lastIndex;
    return JSON.parse(match[0]);
  };
  const members = (close, member) => {
    at += 1;
    skip();
    if (text[at] === close) {
      at += 1;
      return;
    }
    for (;;) {
      member();
      skip();
      if (text[at] === close) {
        at += 1;
        return;
      }
      if (text[at] !== ",") fail(`expected "," or "${close}", ${found()}`);
      at += 1;
      skip();
      if (text[at] === close) fail(`nothing follows the "," before "${close}"`);
    }
  };
  const value = (pointer, depth) => {
    skip();
    if (depth > 128) fail("this is nested too deeply");
    if (!places.has(pointer)) places.set(pointer, at);
    if (text[at] === "{") {
      members("}", () => {
        if (text[at] !== '"') fail(`expected a name in double quotes, ${found()}`);
        const start = at;
        const name = string().replaceAll("~", "~0").replaceAll("/", "~1");
        skip();
        if (text[at] !== ":") fail(`expected ":", ${found()}`);
        at += 1;
        places.set(`${pointer}/${name}`, start);
        value(`${pointer}/${name}`, depth + 1);
      });
    } else if (text[at] === "[") {
      let index = 0;
      members("]", () => {
        value(`${pointer}/${index}`, depth + 1);
        index += 1;
      });
    } else if (text[at] === '"') {
      string();
    } else {
      const literal = /true|false|null|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?/y;
      literal.lastIndex = at;
      if (!literal.test(text)) fail(`expected a value, ${found()}`);
      at = literal.lastIndex;
    }
  };

  try {
    value("", 0);
    skip();
    if (at < text.length) fail(`expected the end, ${found()}`);
    return { places };
  } catch (error) {
    if (error.index === undefined) throw error;
    return { error: { message: error.message, ...placeAt(text, error.index) } };
  }
}

/** Line and column of a pointer (`#/a/b` or `/a/b`), or of its nearest parent that stands in the text. */
export function placeOf(text, pointer) {
  const { places } = readJson(text);
  if (!places) return null;
  let path = pointer.replace(/^#/, "");
  try {
    path = decodeURIComponent(path);
  } catch {
    // Not percent-encoded: taken as it is.
  }
  while (!places.has(path)) {
    if (path === "") return null;
    path = path.slice(0, Math.max(0, path.lastIndexOf("/")));
  }
  return placeAt(text, places.get(path));
}
