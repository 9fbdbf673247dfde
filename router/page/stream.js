// Talks to the OpenAI API of the router that served this page: the models, and answers as they come.
// Knows nothing of the page. Paths are relative, so that a path prefix in front of the router works.

export class ApiError extends Error {
  // `status`: of HTTP, 0 when there was no answer or it broke off.
  constructor(message, status = 0, retryAfterS = 0) {
    super(message);
    this.status = status;
    this.retryAfterS = retryAfterS;
  }
}

function headersFor(key) {
  return key ? { Authorization: `Bearer ${key}` } : {};
}

async function errorOf(response) {
  let message = `the server answered ${response.status} ${response.statusText}`;
  try {
    message = (await response.json()).error.message;
  } catch {
    // Not from the router: something in front of it answered.
  }
  return new ApiError(message, response.status, Number(response.headers.get("Retry-After")) || 0);
}

async function call(path, options) {
  let response;
  try {
    response = await fetch(path, { cache: "no-store", ...options });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError("the server cannot be reached");
  }
  if (!response.ok) throw await errorOf(response);
  return response;
}

// [{id, max_model_len}, ...]
export async function listModels(key) {
  const response = await call("v1/models", { headers: headersFor(key) });
  return (await response.json()).data;
}

// The data of each server-sent event of a response body.
export async function* sseData(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let pending = "";
  let data = [];
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const lines = (pending + value).split("\n");
    pending = lines.pop();
    for (const line of lines.map((l) => l.replace(/\r$/, ""))) {
      if (line.startsWith("data:")) {
        data.push(line.slice(line[5] === " " ? 6 : 5));
      } else if (line === "" && data.length > 0) {
        yield data.join("\n");
        data = [];
      }
    }
  }
}

// Chunks of a chat completion, parsed. Throws ApiError; AbortError after signal.abort().
export async function* streamChat(body, key, signal) {
  const response = await call("v1/chat/completions", {
    method: "POST",
    headers: { "Content-Type": "application/json", ...headersFor(key) },
    body: JSON.stringify({
      ...body,
      stream: true,
      stream_options: { include_usage: true, continuous_usage_stats: true },
      return_workers: true,
    }),
    signal,
  });
  try {
    for await (const data of sseData(response.body)) {
      if (data === "[DONE]") return;
      const chunk = JSON.parse(data);
      if (chunk.error) throw new ApiError(chunk.error.message, chunk.error.code);
      yield chunk;
    }
  } catch (error) {
    if (error instanceof ApiError || error.name === "AbortError") throw error;
    throw new ApiError(`the answer broke off: ${error.message}`);
  }
  throw new ApiError("the connection was closed before the answer was complete");
}
