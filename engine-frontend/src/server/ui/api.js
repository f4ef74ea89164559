// Calls of the server that this page came from. Addresses are relative, so that `--root-path` works.

/** The server's address: the folder above this file's. */
export const BASE = new URL("..", import.meta.url);

/** JSON as the user wrote it, put into a body unchanged: order, long numbers and repeated keys stay. */
export class Raw {
  constructor(text) {
    this.text = text;
  }
}

/** Writes a body. `Raw` values go in as they are. */
export function encode(body, indent = 0) {
  const pieces = [];
  const mark = `raw-${crypto.getRandomValues(new Uint32Array(2)).join("-")}-`;
  const text = JSON.stringify(
    body,
    (_, value) => (value instanceof Raw ? mark + (pieces.push(value.text) - 1) : value),
    indent,
  );
  return text.replace(new RegExp(`"${mark}(\\d+)"`, "g"), (_, at) => pieces[Number(at)].trim());
}

/** An answer that isn't 2xx, or none at all. */
export class ApiError extends Error {
  constructor(message, status = 0, param = null) {
    super(message);
    this.status = status;
    this.param = param;
  }
}

async function send(path, options) {
  let response;
  try {
    response = await fetch(new URL(path, BASE), options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError("The server can't be reached. Is it still running?");
  }
  if (response.ok) return response;
  const text = await response.text();
  let error = {};
  try {
    error = JSON.parse(text).error ?? {};
  } catch {
    // Not JSON: a proxy's page, say. The status says enough.
  }
  throw new ApiError(
    error.message ?? `The server answered with status ${response.status}.`,
    response.status,
    error.param,
  );
}

const post = (path, body, signal) =>
  send(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: encode(body), signal });

export const getJson = async (path, signal) => (await send(path, { signal })).json();
export const getText = async (path, signal) => (await send(path, { signal })).text();
export const postJson = async (path, body, signal) => (await post(path, body, signal)).json();

/** Sends a request and yields the events of its stream. Throws where the stream ends before `[DONE]`. */
export async function* stream(path, body, signal) {
  const response = await post(path, body, signal);
  const reader = response.body.getReader();
  const decoder = new TextDecoder();
  let rest = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      rest += decoder.decode(value, { stream: true });
      const lines = rest.split("\n");
      rest = lines.pop();
      for (const line of lines) {
        if (!line.startsWith("data:")) continue;
        const data = line.slice(5).trim();
        if (data === "[DONE]") return;
        const event = JSON.parse(data);
        if (event.error) throw new ApiError(event.error.message, event.error.code, event.error.param);
        yield event;
      }
    }
  } catch (error) {
    if (error.name === "AbortError" || error instanceof ApiError) throw error;
    throw new ApiError("The stream was cut off: the answer above isn't whole.");
  }
  throw new ApiError("The stream was cut off: the answer above isn't whole.");
}
