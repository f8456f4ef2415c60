// Sends requests to the page's server: JSON in, JSON out.

export class Refused extends Error {}

// Send one request. Throws Refused with a one-line message, or AbortError if `signal` aborts.
export async function ask(path, body, signal) {
  const options = { signal };
  if (body instanceof Blob) {
    Object.assign(options, { method: "POST", headers: { "content-type": "application/octet-stream" }, body });
  } else if (body !== undefined) {
    Object.assign(options, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) });
  }
  let response, answer;
  try {
    response = await fetch(path, options);
    answer = await response.json();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused("The page's own server does not answer: is it still running?");
  }
  if (!response.ok) throw Object.assign(new Refused(answer.error ?? `status ${response.status}`), { status: response.status });
  return answer;
}
