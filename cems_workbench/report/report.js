// What a report can do beyond being read: sort a table, tell a mark's values at once, find a query, hide a series, go from a mark to its row.
// Without it everything is still there. It asks nothing of a network and makes no markup out of texts: they are set as text.
"use strict";
(() => {
  const every = (selector, within = document) => [...within.querySelectorAll(selector)];
  const made = (tag, properties) => Object.assign(document.createElement(tag), properties);

  // A cell's number, or null: "−0.0123 (…)", "1.5e-7", "0.4 to 0.6" begin with theirs; "–" and words have none.
  const number = (words) => {
    const found = words.replaceAll("\u2212", "-").trim().match(/^[+-]?\d[\d,]*\.?\d*(?:e[+-]?\d+)?/i);
    return found ? Number(found[0].replaceAll(",", "")) : null;
  };

  const sorted = (table, column, direction) => {
    const body = table.tBodies[0], first = table.first;
    const keyed = first.map((row) => ({row, words: row.cells[column].textContent.trim()}));
    const numbers = keyed.filter((one) => number(one.words) !== null).length * 2 >= keyed.length;
    for (const one of keyed) one.key = numbers ? number(one.words) : one.words;
    const none = (key) => key === null || key === "";
    if (direction) keyed.sort((a, b) => {
      if (none(a.key) || none(b.key)) return none(a.key) - none(b.key);
      return direction * (numbers ? a.key - b.key : a.key.localeCompare(b.key, "en", {numeric: true}));
    });
    body.append(...keyed.map((one) => one.row));
  };

  const sortable = (table) => {
    const rows = [...table.tBodies[0].rows], heads = [...table.tHead.rows[0].cells];
    if (rows.length < 2 || rows.some((row) => row.cells.length !== heads.length)) return;
    table.first = rows;
    heads.forEach((head, column) => {
      if (head.hasAttribute("data-fixed")) return;
      const button = made("button", {type: "button", className: "sort", title: "Sort by this column"});
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        const then = head.getAttribute("aria-sort");
        // Figures begin with the largest, words with the first of the alphabet; the third click is the order the report came in.
        const turns = head.classList.contains("n") ? [null, "descending", "ascending"] : [null, "ascending", "descending"];
        const now = turns[(turns.indexOf(then) + 1) % 3];
        heads.forEach((one) => one.removeAttribute("aria-sort"));
        if (now) head.setAttribute("aria-sort", now);
        sorted(table, column, now ? (now === "ascending" ? 1 : -1) : 0);
      });
    });
  };

  const tip = made("div", {className: "tip", hidden: true});
  const tell = (words, event) => {
    tip.textContent = words;
    tip.hidden = false;
    const {width, height} = tip.getBoundingClientRect();
    const left = Math.min(event.clientX + 14, innerWidth - width - 8), above = event.clientY - height - 12;
    tip.style.left = `${Math.max(8, left)}px`;
    tip.style.top = `${above > 8 ? above : event.clientY + 18}px`;
  };
  const lit = (mark, on) => {
    if (!mark.dataset.of) return;
    for (const one of every(`[data-of="${CSS.escape(mark.dataset.of)}"]`)) one.classList.toggle("lit", on);
  };
  const pointed = (mark) => {
    const title = mark.querySelector("title");
    if (title) {
      mark.words = title.textContent;
      title.remove();  // or the browser would tell it a second time
    }
    mark.addEventListener("pointermove", (event) => { if (mark.words) tell(mark.words, event); lit(mark, true); });
    mark.addEventListener("pointerleave", () => { tip.hidden = true; lit(mark, false); });
    const to = mark.dataset.to && document.getElementById(mark.dataset.to);
    if (!to) return;
    mark.classList.add("goes");
    mark.addEventListener("click", () => {
      tip.hidden = true;
      to.hidden = false;
      to.open = true;
      to.scrollIntoView({block: "start"});
      to.querySelector("summary").focus({preventScroll: true});
    });
  };

  const toggled = (legend) => {
    const figure = document.getElementById(legend.dataset.toggles);
    every("li", legend).forEach((item) => {
      const button = made("button", {type: "button", className: "series", title: "Show or hide"});
      button.setAttribute("aria-pressed", "true");
      button.append(...item.childNodes);
      item.append(button);
      button.addEventListener("click", () => {
        const on = button.getAttribute("aria-pressed") !== "true";
        button.setAttribute("aria-pressed", on);
        for (const mark of every(`.mark[data-series="${CSS.escape(item.dataset.series)}"]`, figure)) mark.classList.toggle("off", !on);
      });
    });
  };

  const found = (tools) => {
    const queries = every("details", document.getElementById(tools.dataset.finds));
    const input = tools.querySelector("input"), said = tools.querySelector("output"), all = tools.querySelector("button");
    tools.hidden = false;
    input.addEventListener("input", () => {
      const wanted = input.value.toLowerCase().split(/\s+/).filter(Boolean);
      let shown = 0;
      for (const query of queries) {
        const words = query.textContent.toLowerCase();
        query.hidden = !wanted.every((word) => words.includes(word));
        shown += !query.hidden;
      }
      said.textContent = wanted.length ? `${shown} of ${queries.length}` : "";
    });
    all.addEventListener("click", () => {
      const open = all.getAttribute("aria-pressed") !== "true";
      all.setAttribute("aria-pressed", open);
      for (const query of queries) query.open = open;
    });
  };

  document.body.append(tip);
  every("table").forEach(sortable);
  every(".mark, [data-of]").forEach(pointed);
  every("[data-toggles]").forEach(toggled);
  every("[data-finds]").forEach(found);
  addEventListener("keydown", (event) => { if (event.key === "Escape") tip.hidden = true; });
  document.documentElement.classList.add("live");
})();
