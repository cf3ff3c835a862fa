/* Side by side: a grid with a row per memory and a column per stage.

ui/inspect/results.py writes the data as text into the page, and this draws it as soon as it is there: a component's own data would
come a task later, behind the drawing of the rest of the page. Only rows in view are in the document, some thirty of them, however many
there are; the followed row always is, and sticks to the edge of the view that it would leave. Everything is set as text, never as HTML:
memories are untrusted. A row is kept by its memory's id, so that a moved slider changes cells in place, and neither the scroll position
nor the focus is lost. No part of the layout is read while a new ranking is drawn, since the browser would lay out the page twice. */
const ROW = 46, HEAD = 40, SPARE = 4, MEMORY = [200, 260], NARROW = 620;
const WIDTHS = {final: 84, memory: 0, list: 96, fusion: 160, rerank: 210, factors: 170, judge: 130, stage: 96};
/* In a narrow view the memory and the last ranks remain visible; the rest of a cell is below the table. */
const NARROW_WIDTHS = {final: 60, memory: 0, list: 54, fusion: 80, rerank: 80, factors: 80, judge: 80, stage: 64};
const DIRECTIONS = {1: 'ascending', '-1': 'descending'};
const FINAL = {key: 'final', kind: 'final', title: 'Rank'}, MEMORY_COLUMN = {key: 'memory', kind: 'memory', title: 'Memory'};
/* What a reader chose: it outlives a redraw of the page, and a visit to the cards. */
const kept = (window.wbSideBySide ??= {sort: ['final', 1], query: null, top: 0, left: 0, open: null});

export default function ({parentElement, setTriggerValue}) {
  const view = (parentElement.wbSideBySide ??= new SideBySide(parentElement));
  view.follow = id => setTriggerValue('follow', id);
  view.look();
}

function make(tag, name = '', text = '') {
  const element = document.createElement(tag);
  if (name) element.className = name;
  if (text) element.textContent = plain(text);
  return element;
}

/* A text without bidi controls, which could make it read as another (platform/bidi.py). */
function plain(text) { return text.replace(/[\u202a-\u202e\u2066-\u2069]/g, '\ufffd'); }

function set(element, attributes) {
  for (const [name, value] of Object.entries(attributes))
    if (value === null) element.removeAttribute(name);
    else if (element.getAttribute(name) !== String(value)) element.setAttribute(name, value);
}

class SideBySide {
  constructor(parent) {
    this.rows = new Map();  // drawn rows by id
    this.at = {id: null, column: 0};  // the cell that the keyboard is on; id null: the header
    this.root = make('div', 'wb-sbs');
    this.scroller = make('div', 'wb-sbs-scroll');
    this.table = make('table');
    this.columns = make('colgroup');
    this.head = make('tr');
    this.body = make('tbody');
    this.words = make('div', 'wb-sbs-words');
    const head = make('thead');
    head.append(this.head);
    this.table.append(this.columns, head, this.body);
    this.scroller.append(this.table);
    this.root.append(this.scroller, this.words);
    parent.append(this.root);
    this.table.setAttribute('role', 'grid');
    this.detail = make('tr', 'wb-sbs-detail');
    this.scroller.addEventListener('scroll', () => {
      kept.top = this.scroller.scrollTop;
      kept.left = this.scroller.scrollLeft;
      this.waiting ??= requestAnimationFrame(() => {
        this.waiting = null;
        if (this.data && String(this.range()) !== String(this.drawn)) this.draw();
      });
    }, {passive: true});
    this.table.addEventListener('click', event => this.clicked(event));
    this.table.addEventListener('keydown', event => this.pressed(event));
    this.table.addEventListener('focusin', event => this.reached(event));
    this.table.addEventListener('focusout', () => this.explain(null));
    this.table.addEventListener('pointerover', event => {
      const cell = event.target.closest('[data-column]');
      if (cell?.said && !event.target.title) cell.title = cell.said;
      this.explain(cell);
    });
    this.table.addEventListener('pointerleave', () => this.explain(document.activeElement?.closest?.('.wb-sbs [data-column]')));
    this.wide = 900;
    this.high = 540;
    new ResizeObserver(() => this.resized()).observe(this.scroller);
    const observer = new MutationObserver(() => { if (this.root.isConnected) this.look(); else observer.disconnect(); });
    observer.observe(document.body, {childList: true, subtree: true});
  }

  /* Draw the data on the page, unless they are drawn. */
  look() {
    const source = document.querySelector('.wb-sbs-data');
    if (!source || source === this.source) return;
    this.source = source;
    this.show(JSON.parse(source.textContent));
  }

  resized() {
    const {clientWidth, clientHeight} = this.scroller;
    if (!clientWidth || (clientWidth === this.wide && clientHeight === this.high)) return;
    this.wide = clientWidth;
    this.high = clientHeight;
    if (!this.data) return;
    this.measure();
    this.draw();
  }

  show(data) {
    const other = kept.query !== data.query, followed = this.data ? this.data.followed : null, first = !this.data;
    if (other) Object.assign(kept, {query: data.query, top: 0, open: null});
    this.data = data;
    this.asked = null;
    this.shown = [FINAL, MEMORY_COLUMN, ...data.columns.filter(column => column.kind !== 'rank')];
    this.longest = longest(data);
    this.fusionParts = data.columns.find(column => column.kind === 'fusion')?.parts ?? [];
    if (!this.shown.some(column => column.key === kept.sort[0])) kept.sort = ['final', 1];
    if (kept.open !== data.followed) kept.open = null;
    this.order();
    this.drawHead();
    this.measure();
    const chosenElsewhere = data.followed !== followed && data.followed !== this.clickedId;
    this.clickedId = null;
    this.draw();
    if (other || first) {
      this.scroller.scrollTop = kept.top;
      this.scroller.scrollLeft = kept.left;
    }
    if (chosenElsewhere && data.followed !== null) this.reveal(data.followed);
    this.explain(this.explained);
  }

  /* The memories in the order of the chosen column, by their number in the message; those without a value are last, as in the results. */
  order() {
    const [key, direction] = kept.sort, values = this.values(key), count = this.data.memory_id.length;
    this.sorted = Array.from({length: count}, (_, number) => number);
    if (values)
      this.sorted.sort((a, b) => {
        const one = values[a] ?? null, other = values[b] ?? null;
        if (one === null || other === null) return (one === null) - (other === null) || a - b;
        return direction * (one < other ? -1 : one > other ? 1 : 0) || a - b;
      });
    this.place = new Map(this.sorted.map((number, place) => [this.data.memory_id[number], place]));
  }

  values(key) {
    if (key === 'final') return this.data.final_rank;
    if (key === 'memory') return this.data.memory_id.map((_, number) => this.name(number).toLowerCase());
    const column = this.data.columns.find(each => each.key === key);
    return byScore(column) ? column.score : column.rank;
  }

  name(number) { return this.data.title[number] || this.data.first_words[number]; }

  /* The columns' widths: all are fixed but the memory's, which takes what is left. */
  measure() {
    const narrow = this.wide < NARROW, of = narrow ? NARROW_WIDTHS : WIDTHS;
    const widths = this.shown.map(column => of[column.kind] ?? of.stage);
    const others = widths.reduce((sum, width) => sum + width, 0) - widths[1];
    widths[1] = Math.max(MEMORY[narrow ? 0 : 1], this.wide - others);
    if (String(this.widths) !== String(widths)) {
      this.widths = widths;
      this.columns.replaceChildren(...widths.map(width => { const col = make('col'); col.style.width = width + 'px'; return col; }));
      this.table.style.width = others + widths[1] + 'px';
    }
    this.root.classList.toggle('wb-sbs-narrow', narrow);
    this.root.classList.toggle('wb-sbs-wider', others + widths[1] > this.wide);
    if (this.boxWide !== this.wide) {
      this.boxWide = this.wide;
      this.root.style.setProperty('--wb-sbs-wide', this.wide + 'px');
    }
  }

  drawHead() {
    const cells = this.shown.map((column, place) => {
      const cell = this.head.children[place]?.dataset.key === column.key ? this.head.children[place] : this.headCell(column);
      const sorted = kept.sort[0] === column.key;
      cell.dataset.column = place;
      cell.said = this.data.help[column.key];
      set(cell, {'aria-sort': sorted ? DIRECTIONS[kept.sort[1]] : null, 'aria-colindex': place + 1});
      const part = column.kind === 'list' ? this.fusionParts.findIndex(part => part.list === column.list) : -1;
      cell.style.setProperty('--wb-sbs-colour', this.data.colours[part] ?? 'transparent');
      cell.firstChild.lastChild.textContent = sorted ? (kept.sort[1] === 1 ? '▲' : '▼') : '';
      cell.firstChild.tabIndex = this.at.id === null && this.at.column === place ? 0 : -1;
      return cell;
    });
    if (cells.length !== this.head.children.length || cells.some((cell, place) => cell !== this.head.children[place]))
      this.head.replaceChildren(...cells);
    set(this.head, {'aria-rowindex': 1});
  }

  headCell(column) {
    const cell = make('th', 'wb-sbs-' + column.kind), button = make('button');
    const arrow = make('i');
    arrow.setAttribute('aria-hidden', 'true');
    button.type = 'button';
    button.append(make('span', '', column.title), arrow);
    cell.append(button);
    cell.scope = 'col';
    cell.dataset.key = column.key;
    return cell;
  }

  top(place) { return place * ROW + (this.openPlace !== null && place > this.openPlace ? this.detailHeight : 0); }

  /* The rows in view, with some to spare. */
  range() {
    const count = this.sorted.length, open = this.detailHeight || 0;
    const from = Math.min(kept.top, Math.max(0, count * ROW + open + HEAD - this.high));
    return [Math.max(0, Math.floor((from - open) / ROW) - SPARE), Math.min(count, Math.ceil((from + this.high) / ROW) + SPARE)];
  }

  /* Draw the rows in view, with some to spare; spacers take the room of the others. */
  draw() {
    const count = this.sorted.length, data = this.data;
    this.openPlace = kept.open !== null && data.detail?.id === kept.open ? this.place.get(kept.open) ?? null : null;
    this.drawDetail();
    if (!this.place.has(this.at.id)) this.at.id = null;
    set(this.table, {'aria-rowcount': count + 1, 'aria-colcount': this.shown.length, 'aria-label': data.label});
    const [first, last] = (this.drawn = this.range());
    const wanted = new Set();
    for (let place = first; place < last; place++) wanted.add(place);
    const followed = this.place.get(this.asked ?? data.followed), focused = this.place.get(this.at.id);
    for (const place of [followed, focused, this.openPlace]) if (place !== undefined && place !== null) wanted.add(place);
    const focus = this.body.contains(document.activeElement) ? this.at.column : null;
    const drawn = new Map(), children = [];
    let next = 0;
    for (const place of [...wanted].sort((a, b) => a - b)) {
      if (place > next) children.push(this.spacer(children.length, this.top(place) - this.top(next)));
      const number = this.sorted[place], id = data.memory_id[number], element = this.rows.get(id) ?? make('tr');
      this.fill(element, number, place, place === followed);
      drawn.set(id, element);
      children.push(element);
      if (place === this.openPlace) children.push(this.detail);
      next = place + 1;
    }
    if (next < count) children.push(this.spacer(children.length, this.top(count) - this.top(next)));
    this.rows = drawn;
    this.place_children(children);
    if (focus !== null && this.at.id !== null && !this.body.contains(document.activeElement)) this.cell(this.at)?.focus({preventScroll: true});
    this.tab();
  }

  /* Only what is at another place is moved, since a moved element loses the focus. */
  place_children(children) {
    const wanted = new Set(children);
    for (const child of [...this.body.children]) if (!wanted.has(child)) child.remove();
    children.forEach((child, place) => {
      if (this.body.children[place] !== child) this.body.insertBefore(child, this.body.children[place] ?? null);
    });
  }

  spacer(number, height) {
    this.spacers ??= [];
    const spacer = (this.spacers[number] ??= make('tr', 'wb-sbs-spacer'));
    spacer.setAttribute('aria-hidden', 'true');
    spacer.style.height = height + 'px';
    return spacer;
  }

  fill(element, number, place, followed) {
    const {data} = this, after = this.openPlace !== null && place > this.openPlace ? 1 : 0;
    const name = [data.dropped_by[number] ? 'wb-sbs-cut' : '', followed ? 'wb-sbs-followed' : ''].join(' ').trim();
    if (element.className !== name) element.className = name;
    set(element, {'aria-rowindex': place + 2 + after, 'aria-selected': followed, 'data-id': data.memory_id[number]});
    this.shown.forEach((column, place) => {
      let cell = element.children[place];
      if (cell?.dataset.key !== column.key) {
        const made = make(column.kind === 'memory' ? 'th' : 'td', 'wb-sbs-' + column.kind);
        if (column.kind === 'memory') made.scope = 'row';
        else made.setAttribute('role', 'gridcell');
        made.dataset.key = column.key;
        made.tabIndex = -1;
        if (cell) cell.replaceWith(made); else element.append(made);
        cell = made;
      }
      cell.dataset.column = place;
      cell.setAttribute('aria-colindex', place + 1);
      const [words, content] = this[{final: 'final', memory: 'memory'}[column.kind] ?? 'number'](number, column);
      const sign = column.kind === 'fusion' ? words + this.longest : words;
      if (cell.sign === sign) return;
      cell.sign = sign;
      cell.said = plain(words);
      cell.removeAttribute('title');
      if (column.kind !== 'memory') cell.setAttribute('aria-label', cell.said);
      cell.replaceChildren(...content());
    });
    while (element.children.length > this.shown.length) element.lastChild.remove();
  }

  /* Each of these gives a cell's words, which say all that it shows, and a function that makes what it shows. */
  final(number) {
    const {data} = this, rank = data.final_rank[number], move = data.move[number], former = data.former_rank[number];
    if (data.dropped_by[number] !== null) {
      const by = data.stages[data.dropped_by[number]] ?? data.dropped_by[number];
      return [`dropped by ${by}: ${data.dropped_words[number]}`, () => [make('span', 'wb-sbs-drop', '✕ ' + by)]];
    }
    const sign = move === null ? 'new' : move === 0 ? '=' : (move > 0 ? '▲ ' : '▼ ') + Math.abs(move);
    const words = former === null ? `no rank ${data.compared}` : move === 0 ? `the same rank ${data.compared}`
      : `${move > 0 ? 'up' : 'down'} from rank ${former} ${data.compared}`;
    return [`rank ${rank}, ${words}`, () => [make('b', '', String(rank)), make('span', 'wb-sbs-move', sign)]];
  }

  memory(number) {
    const {data} = this, id = data.memory_id[number], title = data.title[number], grade = data.grade[number], stale = data.stale[number];
    const graded = grade === null ? '' : `grade ${grade}, ${data.grades[grade] ?? 'judged'}`;
    const words = [graded, stale, title, data.first_words[number], id].filter(Boolean).join(' · ');
    return [words, () => {
      const first = make('div', 'wb-sbs-title'), second = make('div', 'wb-sbs-text');
      if (graded) first.append(this.badge('grade', `grade ${grade}`, graded));
      if (stale) first.append(this.badge('stale', 'stale', stale));
      first.append(make('span', title ? '' : 'wb-sbs-first', this.name(number)));
      second.append(make('code', '', id), title ? plain(data.first_words[number]) : '');
      return [first, second];
    }];
  }

  badge(kind, text, words) {
    const badge = make('span', 'wb-sbs-badge wb-sbs-' + kind, text);
    badge.title = plain(words);
    return badge;
  }

  number(number, column) {
    const rank = column.rank[number] ?? null, score = column.score[number] ?? null;
    const parts = column.parts.map((part, place) => [place, part.label, column.values[place][number] ?? null]).filter(part => part[2] !== null);
    const missed = column.missed?.[number] ?? null;
    if (missed !== null)
      return [`${column.title}: missed; compared exactly it is at rank ${missed}`, () => [make('span', 'wb-sbs-drop', '✕ missed')]];
    if (rank === null && score === null && !parts.length) {
      const words = column.kind === 'list' ? `${column.title}: not in this list` : `${column.title}: no score`;
      return [words, () => [make('span', 'wb-sbs-none', '–')]];
    }
    const said = [rank === null ? '' : `rank ${rank}`, score === null ? '' : `score ${digits(score)}`].filter(Boolean).join(', ');
    const times = column.kind === 'factors' ? '× ' : '', sum = column.kind === 'fusion' ? ' = ' : '; ';
    const listed = parts.map(([, label, value]) => `${label} ${times}${digits(value)}`).join(column.kind === 'fusion' ? ' + ' : ', ');
    const here = this.data.dropped_by[number] === column.stage && column.kind !== 'list';
    const cut = here ? `, dropped here: ${this.data.dropped_words[number]}` : '';
    return [`${column.title}: ${said}${listed && sum}${listed}${cut}`, () => {
      const line = make('div', 'wb-sbs-numbers');
      if (cut) line.append(make('b', '', '✕'));
      else if (rank !== null) line.append(make('b', '', String(rank)));
      if (score !== null) line.append(make('span', '', digits(score)));
      if (!parts.length) return [line];
      if (column.kind === 'fusion') return [line, this.bar(parts, column)];
      const telling = column.kind === 'factors' ? parts.filter(part => part[2] !== 1) : parts;
      const note = blend(parts) ?? (telling.map(([, label, value]) => `${label} ${times}${short(value)}`).join(' · ') || '× 1');
      return [line, make('div', 'wb-sbs-note', note)];
    }];
  }

  bar(parts, column) {
    const bar = make('div', 'wb-sbs-bar');
    bar.setAttribute('aria-hidden', 'true');
    for (const [place, , value] of parts) {
      if (!(value > 0)) continue;
      const part = make('i', isBonus(column.parts[place]) ? 'wb-sbs-bonus' : '');
      part.style.width = (100 * value / (this.longest || 1)).toFixed(2) + '%';
      part.style.setProperty('--wb-sbs-colour', this.data.colours[place]);
      bar.append(part);
    }
    return bar;
  }

  /* The text of the followed memory below its row. */
  drawDetail() {
    if (this.openPlace === null) { this.detailHeight = 0; this.detail.remove(); return; }
    const {detail} = this.data, columns = this.shown, sign = JSON.stringify(detail) + [columns.length, this.wide];
    if (this.detail.sign !== sign) {
      this.detail.sign = sign;
      const cell = make('td'), box = make('div', 'wb-sbs-box'), facts = make('div', 'wb-facts'), text = make('div', 'wb-text');
      cell.colSpan = columns.length;
      cell.setAttribute('role', 'gridcell');
      for (const [meaning, words, kind] of detail.facts) {
        const fact = make('span', kind, words);
        fact.title = plain(meaning);
        facts.append(fact);
      }
      if (detail.title) text.append(make('b', '', detail.title), '\n');
      for (const [kind, words] of detail.pieces) text.append(make('span', kind, words));
      set(box, {tabindex: 0, role: 'group', 'aria-label': `The text of ${plain(detail.id)}`});
      box.append(facts, text);
      cell.append(box);
      this.detail.replaceChildren(cell);
    }
    set(this.detail, {'aria-rowindex': this.openPlace + 3});
    if (this.detail.isConnected && this.detail.measured === sign) return;
    if (!this.detail.isConnected) this.body.append(this.detail);
    this.detail.measured = sign;
    this.detailHeight = this.detail.offsetHeight;
  }

  cell({id, column}) {
    return id === null ? this.head.children[column]?.firstChild : this.rows.get(id)?.children[column];
  }

  /* One cell is reached by the Tab key: that of the keyboard, at first the first row's memory. */
  tab() {
    if (this.at.id === null && !this.head.contains(document.activeElement) && this.sorted.length && !this.tabbed)
      this.at = {id: this.data.memory_id[this.sorted[0]], column: 1};
    const now = this.cell(this.at);
    for (const other of this.table.querySelectorAll('tr:not(.wb-sbs-detail) [tabindex="0"]')) if (other !== now) other.tabIndex = -1;
    if (now) now.tabIndex = 0;
  }

  reached(event) {
    const cell = event.target.closest('[data-column]');
    if (!cell) return;
    this.tabbed = true;
    this.at = {id: cell.closest('tr').dataset.id ?? null, column: Number(cell.dataset.column)};
    this.tab();
    this.explain(cell);
  }

  /* The line below the table: what a cell says, or the colours of the bars. */
  explain(cell) {
    this.explained = cell;
    const words = cell?.said, sign = words ?? JSON.stringify([this.fusionParts, this.data?.colours]);
    if (this.words.said === sign) return;
    this.words.said = sign;
    if (words) { this.words.replaceChildren(words); return; }
    this.words.replaceChildren(...(this.fusionParts ?? []).map((part, place) => {
      const item = make('span', 'wb-sbs-key'), mark = make('i', isBonus(part) ? 'wb-sbs-bonus' : '');
      mark.style.setProperty('--wb-sbs-colour', this.data.colours[place]);
      item.append(mark, plain(part.label));
      return item;
    }));
  }

  clicked(event) {
    const head = event.target.closest('thead [data-column]');
    if (head) { this.sort(Number(head.dataset.column)); return; }
    if (String(getSelection())) return;  // text is being selected
    const row = event.target.closest('tr[data-id]');
    if (row) this.choose(row.dataset.id);
  }

  sort(place) {
    const column = this.shown[place], best = byScore(column) ? -1 : 1;
    kept.sort = [column.key, kept.sort[0] === column.key ? -kept.sort[1] : best];
    this.order();
    this.drawHead();
    this.scrollTo(0);
  }

  /* Follow a memory and open its text; the followed one's is opened and closed. */
  choose(id) {
    kept.open = kept.open === id ? null : id;
    if ((this.asked ?? this.data.followed) !== id) {
      this.asked = this.clickedId = id;
      this.follow(id);
    }
    this.draw();
  }

  pressed(event) {
    const far = event.ctrlKey && ['Home', 'End'].includes(event.key);
    if ((event.ctrlKey && !far) || event.metaKey || event.altKey || event.target.closest('.wb-sbs-box')) return;
    const last = this.sorted.length - 1, page = Math.max(1, Math.floor((this.high - HEAD) / ROW) - 1);
    const row = this.at.id === null ? -1 : this.place.get(this.at.id), column = this.at.column;
    const step = {ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page}[event.key];
    if (step !== undefined) this.go(Math.min(last, Math.max(event.key === 'ArrowUp' ? -1 : 0, row + step)), column);
    else if (event.key === 'Home') this.go(far ? 0 : row, far ? column : 0);
    else if (event.key === 'End') this.go(far ? last : row, far ? column : this.shown.length - 1);
    else if (event.key === 'ArrowRight') this.go(row, Math.min(this.shown.length - 1, column + 1));
    else if (event.key === 'ArrowLeft') this.go(row, Math.max(0, column - 1));
    else if (['Enter', ' '].includes(event.key) && row >= 0) this.choose(this.at.id);
    else if (event.key === 'Escape' && kept.open !== null) { kept.open = null; this.draw(); }
    else return;  // the keys of a header's button are its own
    event.preventDefault();
  }

  go(place, column) {
    this.at = {id: place < 0 ? null : this.data.memory_id[this.sorted[place]], column};
    if (place >= 0) this.reveal(this.at.id);
    this.revealColumn(column);
    this.draw();
    this.cell(this.at)?.focus({preventScroll: true});
  }

  /* Scroll a row into the part of the table that neither the header nor the followed row covers. */
  reveal(id) {
    const place = this.place.get(id);
    if (place === undefined) return;
    const from = kept.top, high = this.high - HEAD, top = this.top(place);
    const pinned = this.place.get(this.asked ?? this.data.followed);
    const above = pinned !== undefined && pinned < place ? ROW : 0, below = pinned !== undefined && pinned > place ? ROW : 0;
    if (top - above < from) this.scrollTo(top - above);
    else if (top + ROW + below > from + high) this.scrollTo(top + ROW + below - high);
  }

  /* Scroll, and draw the rows there: the event of the scrolling comes a frame later. */
  scrollTo(top) {
    this.scroller.scrollTop = Math.max(0, top);
    kept.top = this.scroller.scrollTop;
    this.draw();
  }

  revealColumn(column) {
    if (column < 2) return;
    const left = this.widths.slice(0, column).reduce((sum, width) => sum + width, 0), fixed = this.widths[0] + this.widths[1];
    const from = this.scroller.scrollLeft, {wide} = this;
    if (left - fixed < from) this.scroller.scrollLeft = left - fixed;
    else if (left + this.widths[column] > from + wide) this.scroller.scrollLeft = left + this.widths[column] - wide;
  }
}

/* The largest score that a bar shows: all bars have one scale. */
function longest(data) {
  const fusion = data.columns.find(column => column.kind === 'fusion');
  if (!fusion) return 0;
  const sums = data.memory_id.map((_, number) => fusion.values.reduce((sum, values) => sum + Math.max(values[number] ?? 0, 0), 0));
  return sums.reduce((most, sum) => Math.max(most, sum), 0);
}

/* Four decimals, as on the cards; a number that they do not show is written with its magnitude. */
function digits(value) {
  const size = Math.abs(value);
  return size !== 0 && (size < 0.0001 || size >= 1e6) ? value.toExponential(2) : value.toFixed(4);
}

/* What the blend made of a reranker's score: raw → weight × normalised + weight × the score before; null if nothing was blended. */
function blend(parts) {
  const {raw, normalised, 'retrieval score': score, 'retrieval weight': weight} = Object.fromEntries(parts.map(([, label, value]) => [label, value]));
  if ([raw, normalised, score, weight].includes(undefined)) return null;
  return `${short(raw)} → ${short(1 - weight)} × ${short(normalised)} + ${short(weight)} × ${short(score)}`;
}

function short(value) { return String(Number(value.toPrecision(3))); }

/* Bonuses are hatched, as in Contributions; a base and a blend are not. */
function isBonus(part) { return /bonus|floor/.test(part.kind); }

/* The judge gives a score and no rank: the best score is first. */
function byScore(column) { return column.kind === 'judge'; }
