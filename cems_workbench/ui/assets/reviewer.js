/* Keeps the reviewer's name in a cookie of this browser, which the server reads when a session begins. */
(() => {
  if (window.wbReviewer) return;
  window.wbReviewer = true;
  addEventListener('input', event => {
    if (!(event.target instanceof Element) || !event.target.closest('.st-key-reviewer-name')) return;
    document.cookie = `cems_workbench_reviewer=${encodeURIComponent(event.target.value.trim())}; path=/; max-age=31536000; samesite=lax`;
  });
})();
