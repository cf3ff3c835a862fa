/* The keys of the Label page: a listener that presses the card's own buttons, and sees to it that each card is shown from its top.

Streamlit's own shortcuts belong to a button and begin with it, so that a key pressed while a card is being painted was lost, and they
refuse "?". This listener begins before the card: a key is meant for the card that can be seen when it is pressed, waits for that
card's button to be there, and presses it. A card is answered once; a second key before the next card can be seen does nothing, since
nobody has read that card yet. The buttons carry the card's turn in their key, so that a late press can never reach another card. */
(() => {
  if (window.wbLabelKeys) return;
  window.wbLabelKeys = true;
  const WAIT = 30000, SETTLED = 2000, NOTE = '.st-key-label-note textarea';
  const ANSWERS = {s: 'skip', q: 'unclear', x: 'nothing'}, OTHERS = {u: 'undo', n: 'open_note', h: 'help', '?': 'help'};
  let answered = null, wanted = null, noting = null;
  const turn = () => document.querySelector('.wb-card')?.dataset.turn;
  // While the page is drawn anew the card may be gone for a moment: it is the one that was there.
  let seen = turn();
  const another = asked => ![asked, undefined].includes(turn());
  const elsewhere = 'input, textarea, select, [contenteditable="true"], [role="dialog"], [role="listbox"]';
  const typing = at => at instanceof Element && at.closest(elsewhere);
  const flash = button => { if (!matchMedia('(prefers-reduced-motion: reduce)').matches) button.animate({opacity: [1, .35, 1]}, 180); };
  function press() {
    if (!wanted) return;
    if (another(wanted.turn) || performance.now() > wanted.until) { wanted = null; return; }
    const button = document.querySelector('.st-key-label-' + wanted.name + ' button:not(:disabled)');
    if (!button) { requestAnimationFrame(press); return; }
    if (wanted.answers) answered = wanted.turn;
    const asked = wanted, opens = asked.name === 'open_note' && !document.querySelector(NOTE);
    wanted = null;
    noting = opens ? asked : null;
    if (opens) focus(asked, null);
    flash(button);
    button.click();
  }
  // The note is drawn by the server: it gets the keys whenever it comes, and again where it is drawn anew, unless the reader went on
  // to something else or left it.
  function focus(asked, given) {
    const box = document.querySelector(NOTE);
    if (noting !== asked || wanted || another(asked.turn) || performance.now() > asked.until) return;
    if (box && box !== given && !typing(document.activeElement)) {
      box.focus();
      asked.until = Math.min(asked.until, performance.now() + SETTLED);
    }
    requestAnimationFrame(() => focus(asked, box ?? given));
  }
  function scroll(event) {
    const text = document.querySelector('.wb-card-memory p');
    if (!text || typing(event.target) || text.scrollHeight <= text.clientHeight) return;
    text.scrollBy(0, event.key === 'ArrowDown' ? 66 : -66);
    event.preventDefault();
  }
  // A box that has taken its value gives the keys back: a name after Enter, the queue's once its list is closed.
  const BOXES = '.st-key-reviewer-name, .st-key-label-chosen';
  const leave = until => requestAnimationFrame(() => {
    const at = document.activeElement, open = document.querySelector('[role="listbox"]');
    if (at?.closest(BOXES) && !open) at.blur();
    else if (performance.now() < until) leave(until);
  });
  document.addEventListener('keyup', event => {
    if (['Enter', 'Escape'].includes(event.key) && event.target.closest?.(BOXES)) leave(performance.now() + 1000);
  }, true);
  document.addEventListener('pointerup', event => {
    if (event.target.closest?.('[role="option"]')) leave(performance.now() + 1000);
  }, true);
  // A card opens at its top, however far the one before it was read.
  new MutationObserver(() => {
    const now = turn(), card = document.querySelector('.wb-card');
    if (now === undefined || now === seen) return;
    const again = seen !== undefined;
    seen = now;
    if (!again) return;
    const edge = parseFloat(getComputedStyle(card).scrollMarginTop);
    if (card.getBoundingClientRect().top < edge) card.scrollIntoView({block: 'start'});
  }).observe(document.body, {childList: true, subtree: true, attributes: true, attributeFilter: ['data-turn']});
  document.addEventListener('keydown', event => {
    if (event.key === 'Escape' && event.target.closest?.(NOTE)) { noting = null; event.target.blur(); return; }
    if (event.key === 'ArrowDown' || event.key === 'ArrowUp') { scroll(event); return; }
    if (event.repeat || event.ctrlKey || event.metaKey || event.altKey || typing(event.target)) return;
    const key = event.key.toLowerCase(), now = turn() ?? seen;
    const answer = /^[0-9]$/.test(key) ? 'grade-' + key : ANSWERS[key];
    if (answer && now !== undefined && now !== answered && !wanted?.answers)
      wanted = {turn: now, name: answer + '-' + now, answers: true, until: performance.now() + WAIT};
    else if (!answer && OTHERS[key] && document.querySelector('.wb-card-progress'))
      wanted = {turn: now, name: OTHERS[key], answers: false, until: performance.now() + WAIT};
    else return;
    event.preventDefault();
    press();
  });
})();
