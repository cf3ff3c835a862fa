/* Keys of the Label page: a listener that presses the buttons of a card or of a pair of memories, and scrolls each new card to its top.

Streamlit's shortcuts exist only once their button does, so that a key pressed while a card is being drawn was lost, and they do not
support "?". This listener starts before the card: a key applies to the card that is visible when it is pressed, and waits for that
card's button. A card is answered once; a second key before the next card is visible is ignored, since nobody has read that card yet.
The buttons carry the card's number in their key, so that a late press can never reach another card. */
(() => {
  if (window.wbLabelKeys) return;
  window.wbLabelKeys = true;
  const WAIT = 30000, SETTLED = 2000, NOTE = '.st-key-label-note textarea';
  const ANSWERS = {s: 'skip', q: 'unclear', x: 'nothing'}, PAIR = {a: 'accept', x: 'reject', w: 'swap', s: 'skip'};  // not r: Streamlit's own key reruns the page
  const OTHERS = {u: 'undo', n: 'open_note', h: 'help', '?': 'help'};
  let answered = null, wanted = null, noting = null;
  // Shift and a digit are a negative grade; 0 is 10 where the scale has no 0.
  const grades = event => {
    if (/^[0-9]$/.test(event.key)) return ['grade-' + event.key, ...(event.key === '0' ? ['grade-10'] : [])];
    const digit = event.shiftKey && /^(?:Digit|Numpad)([1-9])$/.exec(event.code)?.[1];
    return digit ? ['grade--' + digit] : null;
  };
  const cardNo = () => document.querySelector('.wb-card')?.dataset.card;
  // While the page is redrawn the card may be missing for a moment: then the last one counts.
  let seen = cardNo();
  const another = asked => ![asked, undefined].includes(cardNo());
  const elsewhere = 'input, textarea, select, [contenteditable="true"], [role="dialog"], [role="listbox"]';
  const typing = at => at instanceof Element && at.closest(elsewhere);
  const flash = button => { if (!matchMedia('(prefers-reduced-motion: reduce)').matches) button.animate({opacity: [1, .35, 1]}, 180); };
  function press() {
    if (!wanted) return;
    if (another(wanted.card) || performance.now() > wanted.until) { wanted = null; return; }
    const buttons = wanted.names.map(name => document.querySelector('.st-key-label-' + name + ' button:not(:disabled)'));
    const button = buttons.find(Boolean);
    // The grades are drawn before Skip: a grade that is not there by then is not on the scale.
    if (!button && wanted.names[0].startsWith('grade') && document.querySelector('.st-key-label-skip-' + wanted.card)) { wanted = null; return; }
    if (!button) { requestAnimationFrame(press); return; }
    if (wanted.answers) answered = wanted.card;
    const asked = wanted, opens = asked.names[0] === 'open_note' && !document.querySelector(NOTE);
    wanted = null;
    noting = opens ? asked : null;
    if (opens) focus(asked, null);
    flash(button);
    button.click();
  }
  // The note is drawn by the server: it is focused when it appears and again after a redraw, unless the reader has moved on or left it.
  function focus(asked, given) {
    const box = document.querySelector(NOTE);
    if (noting !== asked || wanted || another(asked.card) || performance.now() > asked.until) return;
    if (box && box !== given && !typing(document.activeElement)) {
      box.focus();
      asked.until = Math.min(asked.until, performance.now() + SETTLED);
    }
    requestAnimationFrame(() => focus(asked, box ?? given));
  }
  function scroll(event) {
    const long = [...document.querySelectorAll('.wb-card-memory p')].filter(text => text.scrollHeight > text.clientHeight);
    if (!long.length || typing(event.target)) return;
    for (const text of long) text.scrollBy(0, event.key === 'ArrowDown' ? 66 : -66);
    event.preventDefault();
  }
  // A box with a confirmed value gives up the focus: the name after Enter, the queue once its list is closed.
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
  // Scroll a new card to its top, however far the previous one was scrolled.
  new MutationObserver(() => {
    const now = cardNo(), card = document.querySelector('.wb-card');
    if (now === undefined || now === seen) return;
    const again = seen !== undefined;
    seen = now;
    if (!again) return;
    const edge = parseFloat(getComputedStyle(card).scrollMarginTop);
    if (card.getBoundingClientRect().top < edge) card.scrollIntoView({block: 'start'});
  }).observe(document.body, {childList: true, subtree: true, attributes: true, attributeFilter: ['data-card']});
  document.addEventListener('keydown', event => {
    if (event.key === 'Escape' && event.target.closest?.(NOTE)) { noting = null; event.target.blur(); return; }
    if (event.key === 'ArrowDown' || event.key === 'ArrowUp') { scroll(event); return; }
    if (event.repeat || event.ctrlKey || event.metaKey || event.altKey || typing(event.target)) return;
    const key = event.key.toLowerCase(), now = cardNo() ?? seen;
    // A pair has other answers than a card, and no note; a key whose button never comes would hold up the next ones.
    const pair = document.querySelector('.wb-card')?.dataset.answers === 'pair';
    const answers = (pair ? [PAIR[key]] : grades(event) ?? [ANSWERS[key]]).filter(Boolean), answer = answers.length;
    if (pair && key === 'n') return;
    if (answer && now !== undefined && now !== answered && !wanted?.answers)
      wanted = {card: now, names: answers.map(name => name + '-' + now), answers: true, until: performance.now() + WAIT};
    else if (!answer && OTHERS[key] && document.querySelector('.wb-card-progress'))
      wanted = {card: now, names: [OTHERS[key]], answers: false, until: performance.now() + WAIT};
    else return;
    event.preventDefault();
    press();
  });
})();
