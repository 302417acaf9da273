// Shows times in the reader's zone, and keeps what is on the page current. Everything can be read without it.
"use strict";
(() => {
  const moment = { month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", second: "2-digit" };
  const zoned = new Intl.DateTimeFormat(undefined, moment);
  const dated = new Intl.DateTimeFormat(undefined, { year: "numeric", ...moment });
  const short = new Intl.DateTimeFormat(undefined, {
    month: "short", day: "numeric", hour: "2-digit", minute: "2-digit",
  });

  const localize = (root) => {
    for (const time of root.querySelectorAll("time[datetime]")) {
      const at = new Date(time.dateTime);
      if (Number.isNaN(at.getTime())) continue;
      const isThisYear = at.getFullYear() === new Date().getFullYear();
      time.textContent = (isThisYear ? zoned : dated).format(at);
    }
    for (const text of root.querySelectorAll("[data-time]")) {
      const at = new Date(text.dataset.time);
      if (!Number.isNaN(at.getTime())) text.textContent = short.format(at);
    }
  };

  // What makes a node the same as one that came later.
  const keyOf = ({ nodeName, id, dataset = {}, classList = [] }) =>
    [nodeName, id || dataset.host || dataset.id || dataset.group || classList[0]].join(" ");

  // Makes an element what the server sent, and touches nothing that stayed: what has the focus, is pressed, marked,
  // opened or scrolled is the reader's.
  const patch = (old, fresh) => {
    for (const { name } of [...old.attributes]) {
      if (!fresh.hasAttribute(name) && name !== "open") old.removeAttribute(name);
    }
    for (const { name, value } of fresh.attributes) {
      if (old.getAttribute(name) !== value) old.setAttribute(name, value);
    }
    let place = old.firstChild;
    const drop = () => {
      const next = place.nextSibling;
      place.remove();
      place = next;
    };
    for (const wanted of [...fresh.childNodes]) {
      const isElement = wanted.nodeType === Node.ELEMENT_NODE;
      let same = place;
      while (same && keyOf(same) !== keyOf(wanted)) same = isElement ? same.nextSibling : null;
      if (!same) {
        old.insertBefore(wanted, place);
        continue;
      }
      while (place !== same) drop();
      place = same.nextSibling;
      if (isElement) patch(same, wanted);
      else if (same.data !== wanted.data) same.data = wanted.data;
    }
    while (place) drop();
  };

  const everything = ["rollout", "fleet", "audit"];
  // Words like "a minute ago" grow old while nothing changes.
  const wordsLast = 20000;
  // An answer that takes longer does not come.
  const patience = 15000;
  let marks = null;
  // What is out of date.
  let wanted = new Set();
  let isFetching = false;
  // After a failure it is asked again by itself, less and less often.
  let failures = 0;
  let again = null;
  let isSignedOut = false;

  const parts = () => [...document.querySelectorAll("main [data-live][id]")];

  const show = async (names) => {
    const answer = await fetch(location.pathname + location.search, {
      headers: { "x-refit-fragment": "1" }, credentials: "same-origin", redirect: "error",
      signal: AbortSignal.timeout(patience),
    });
    if (answer.status === 401) {
      isSignedOut = true;
      say("off", "signed out");
      source.close();
      return;
    }
    if (!answer.ok) throw new Error(answer.statusText);
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    for (const part of parts()) {
      const fresh = page.getElementById(part.id);
      if (fresh && part.dataset.live.split(" ").some((name) => names.has(name))) {
        localize(fresh);
        patch(part, fresh);
      }
    }
  };

  const refresh = async () => {
    if (isFetching || wanted.size === 0 || document.hidden) return;
    isFetching = true;
    clearTimeout(again);
    const names = wanted;
    wanted = new Set();
    try {
      await show(names);
      failures = 0;
    } catch {
      names.forEach((name) => wanted.add(name));
      failures += 1;
    } finally {
      isFetching = false;
    }
    const pause = failures === 0 ? 0 : Math.min(2000 * 2 ** failures, 60000) * (0.5 + Math.random() / 2);
    // More may have changed in the meantime.
    if (wanted.size > 0) again = setTimeout(refresh, pause);
  };

  const say = (state, word) => {
    const place = document.getElementById("connection");
    if (!place) return;
    place.hidden = false;
    place.dataset.state = state;
    const text = place.querySelector(".word");
    if (text.textContent !== word) text.textContent = word;
  };

  let source = null;

  const listen = () => {
    source = new EventSource(document.body.dataset.live);
    source.addEventListener("hello", (event) => {
      say("on", "live");
      // Something may have been missed since the page was made, or while nobody was heard.
      wanted = new Set(everything);
      marks = JSON.parse(event.data);
      refresh();
    });
    source.addEventListener("changed", (event) => {
      const told = JSON.parse(event.data);
      for (const name of Object.keys(told)) {
        if (told[name] !== marks[name]) wanted.add(name);
      }
      marks = told;
      refresh();
    });
    source.addEventListener("error", () => {
      say("off", "not connected");
      if (source.readyState !== EventSource.CLOSED) return;
      // A browser gives up when it is refused, and does not say why: a page does.
      show(new Set()).catch(() => {});
      setTimeout(() => isSignedOut || listen(), 10000);
    });
  };

  localize(document);
  if (document.body.dataset.live && parts().length > 0) {
    say("off", "connecting");
    listen();
    document.addEventListener("visibilitychange", refresh);
    setInterval(() => {
      if (source.readyState !== EventSource.OPEN) return;
      wanted = new Set(everything);
      refresh();
    }, wordsLast);
  }
})();
