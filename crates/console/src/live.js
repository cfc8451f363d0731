// Fetches the page again while somebody looks at it and neither types nor selects.
"use strict";
const EVERY = 2000;
const sign = document.querySelector(".live");
const busy = () =>
  document.hidden ||
  document.activeElement?.tagName === "INPUT" ||
  !(document.getSelection()?.isCollapsed ?? true);

async function again() {
  if (!busy()) {
    try {
      const answer = await fetch(location.href, { signal: AbortSignal.timeout(30000) });
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const main = page.querySelector("main");
      if (!main) throw new Error(`it answers ${answer.status}`);
      if (!busy()) document.querySelector("main").replaceWith(main);
      sign.textContent = "live";
      sign.dataset.state = "live";
    } catch (error) {
      sign.textContent = `not live: ${error.message}`;
      sign.dataset.state = "lost";
    }
  }
  setTimeout(again, EVERY);
}
setTimeout(again, EVERY);
