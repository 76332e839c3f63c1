"use strict";
(() => {
  const filter = document.getElementById("filter");
  if (filter) {
    const rows = [...document.querySelectorAll("[data-verdict]")];
    const sections = [...document.querySelectorAll("[data-method]")];
    const shown = document.getElementById("shown");
    const choose = () => {
      const wanted = new Set([...filter.querySelectorAll("input:checked")].map((box) => box.value));
      const method = filter.elements.namedItem("method").value;
      let count = 0;
      for (const section of sections) {
        const own = [...section.querySelectorAll("[data-verdict]")];
        const chosen = !method || section.dataset.method === method;
        let left = 0;
        for (const row of own) {
          row.hidden = !(chosen && wanted.has(row.dataset.verdict));
          left += row.hidden ? 0 : 1;
        }
        for (const rest of section.querySelectorAll("details.rest")) {
          const inside = [...rest.querySelectorAll("[data-verdict]")].filter((row) => !row.hidden).length;
          rest.hidden = inside === 0;
          if (inside === left) rest.open = true;
        }
        section.hidden = !chosen || (own.length > 0 && left === 0);
        count += left;
      }
      shown.textContent = `${count} of ${rows.length} claims shown`;
    };
    filter.hidden = false;
    filter.addEventListener("change", choose);
    filter.addEventListener("submit", (event) => event.preventDefault());
    choose();
  }

  const value = (row, column) => row.cells[column].dataset.value ?? row.cells[column].textContent.trim();
  const compare = (column, sign) => (one, other) => {
    const [a, b] = [value(one, column), value(other, column)];
    if (a === "" || b === "") return (a === "") - (b === "");
    const [x, y] = [Number(a.replace("inf", "Infinity")), Number(b.replace("inf", "Infinity"))];
    return sign * (Number.isNaN(x) || Number.isNaN(y) ? a.localeCompare(b) : x < y ? -1 : x > y ? 1 : 0);
  };
  for (const table of document.querySelectorAll("table.sortable")) {
    for (const head of table.tHead.rows[0].cells) {
      const name = head.querySelector(".column");
      const button = document.createElement("button");
      button.type = "button";
      button.className = "sort";
      button.append(...name.childNodes);
      name.append(button);
      button.addEventListener("click", () => {
        const down = head.getAttribute("aria-sort") === "ascending";
        for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        const body = table.tBodies[0];
        body.append(...[...body.rows].sort(compare(head.cellIndex, down ? -1 : 1)));
      });
    }
  }

  let folded = [];
  addEventListener("beforeprint", () => {
    folded = [...document.querySelectorAll("details:not([open]):not(.long)")];
    for (const one of folded) one.open = true;
  });
  addEventListener("afterprint", () => {
    for (const one of folded) one.open = false;
  });
  const reveal = () => {
    const target = location.hash.length > 1 && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    const details = target && target.closest("details");
    if (details) details.open = true;
  };
  addEventListener("hashchange", reveal);
  reveal();
})();
