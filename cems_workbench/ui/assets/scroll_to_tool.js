/* Moves the page to the tools, once they are drawn at their place. */
requestAnimationFrame(() => document.getElementById('what-happened')?.scrollIntoView({block: 'start'}));
