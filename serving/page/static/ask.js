// Questions to the page's server: JSON in, JSON out, and the state of the connection.

const POLL = 2000; // milliseconds between looks for a server that was gone
const status = document.getElementById("status");
let polling = null;
let onReturn = () => {};

export class Refused extends Error {}

// Ask once. Throws Refused with one line for people, or AbortError where `signal` says so.
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

// Say what went wrong in one line; where the server is gone, look for it until it is back.
export function fail(error) {
  if (error.name === "AbortError") return;
  status.className = "error";
  status.textContent = error.message;
  if (error.status !== 400) poll();
}

export function succeed(text) {
  status.className = "";
  status.textContent = text;
}

// Call `connected` with the model whenever the server answers again.
export function whenConnected(connected) {
  onReturn = connected;
  poll(0);
}

function poll(delay = POLL) {
  if (polling !== null) return;
  polling = setTimeout(async () => {
    polling = null;
    try {
      onReturn(await ask("api/model"));
    } catch (error) {
      fail(error);
    }
  }, delay);
}
