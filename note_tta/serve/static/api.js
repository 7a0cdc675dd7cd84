// Asking the service: with the token where there is one, and the wall as it changes.

const KEY = "note-tta-token";

function headers() {
  const token = sessionStorage.getItem(KEY);
  return token ? { Authorization: `Bearer ${token}` } : {};
}

class Failed extends Error {
  constructor(status, reason) {
    super(reason);
    this.status = status;
  }
}

async function open(path, options = {}) {
  for (;;) {
    const response = await fetch(path, { ...options, headers: headers(), cache: "no-store" });
    if (response.status !== 401) return response;
    await askForToken();
  }
}

let asking = null;

function askForToken() {
  asking ??= new Promise((resolve) => {
    const dialog = document.getElementById("ask-token");
    dialog.addEventListener("close", () => {
      sessionStorage.setItem(KEY, document.getElementById("token").value);
      asking = null;
      resolve();
    }, { once: true });
    dialog.showModal();
  });
  return asking;
}

export async function ask(path, method = "GET") {
  const response = await open(path, { method });
  const content = response.status === 204 ? null : await response.json();
  if (!response.ok) throw new Failed(response.status, content.reason);
  return content;
}

export const path = (id) => `/streams/${encodeURIComponent(id)}`;

// Calls `show` with every new look at the wall, for ever; `lost` with a sentence, or null once it is found again.
export async function live(show, lost) {
  for (;;) {
    try {
      const response = await open("/live");
      if (!response.ok) throw new Failed(response.status, (await response.json()).reason);
      lost(null);
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      let text = "";
      for (;;) {
        const { value, done } = await reader.read();
        if (done) break;
        text += value;
        const parts = text.split("\n\n");
        text = parts.pop();
        if (parts.length) show(JSON.parse(parts.at(-1).slice("data: ".length)));
      }
      lost("The service has stopped. Looking for it …");
    } catch (error) {
      lost(error instanceof Failed ? `The service says: ${error.message}` : "The service does not answer. Looking for it …");
    }
    await new Promise((resolve) => setTimeout(resolve, 1500));
  }
}
