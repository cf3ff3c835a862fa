"""Colours and the stylesheet. Colours are Okabe and Ito's, told apart by every common colour vision; none is the only sign."""

from __future__ import annotations

LIST_COLOURS = ("#0072B2", "#E69F00", "#56B4E9", "#D55E00", "#009E73", "#CC79A7", "#8C6D31", "#7B848D")
"""One per list, in the order of the evidence; the ninth list starts over, told apart by its name."""

SOURCE_COLOURS = {
    "vector": ("#0072B2", "#56B4E9", "#2A4D8F", "#8EC7E8"),
    "lexical": ("#E69F00", "#D55E00", "#B8860B", "#F2C14E"),
    "recency": ("#009E73",),
    "access": ("#CC79A7",),
    "relations": ("#7B848D",),
}
"""Shades per source; the n-th variant takes the n-th shade."""

STYLESHEET = """
<style>
.wb-strip {display:grid; grid-template-columns:repeat(12, minmax(0,1fr)); border-radius:.5rem; overflow:hidden;
  border:1px solid color-mix(in srgb, currentColor 16%, transparent);}
@media (max-width:1250px) {.wb-strip {grid-template-columns:repeat(6, minmax(0,1fr));}}
.wb-cell {padding:.5rem .55rem .45rem; min-width:0; overflow:hidden;
  box-shadow:1px 0 0 color-mix(in srgb, currentColor 16%, transparent), 0 1px 0 color-mix(in srgb, currentColor 16%, transparent);}
.wb-cell .wb-name {font-size:.72rem; letter-spacing:.02em; opacity:.72; white-space:nowrap; overflow:hidden; text-overflow:ellipsis;}
.wb-cell .wb-flow {overflow:hidden; text-overflow:ellipsis; font-size:.98rem; font-variant-numeric:tabular-nums; white-space:nowrap; line-height:1.45;}
.wb-cell .wb-flow b {font-weight:650;}
.wb-cell .wb-arrow {opacity:.45; padding:0 .12rem;}
.wb-cell .wb-meta {font-size:.72rem; opacity:.72; font-variant-numeric:tabular-nums; white-space:nowrap;}
.wb-cell.wb-off {color:color-mix(in srgb, currentColor 62%, transparent);}
.wb-warn {font-weight:650; white-space:nowrap;}
.wb-results {display:flex; flex-direction:column; border-top:1px solid color-mix(in srgb, currentColor 12%, transparent);}
.wb-result {display:grid; grid-template-columns:2.1rem 5.4rem minmax(0,1fr); gap:.7rem; padding:.62rem .2rem;
  border-bottom:1px solid color-mix(in srgb, currentColor 12%, transparent);}
.wb-rank {font-size:1.02rem; font-weight:650; text-align:right; font-variant-numeric:tabular-nums;}
.wb-move {display:block; font-size:.72rem; font-weight:400; opacity:.75; white-space:nowrap;}
.wb-delta {font-variant-numeric:tabular-nums; font-weight:600; opacity:1;}
.wb-legend {display:flex; flex-wrap:wrap; gap:.15rem 1.2rem; font-size:.82rem;}
.wb-legend i {font-style:normal; font-size:1rem; line-height:1;}
.wb-against {font-size:.84rem; opacity:.86; padding:.1rem 0; overflow-wrap:anywhere;}
.wb-gone {padding:.7rem .2rem 0;}
.wb-gone h6 {font-size:.9rem; font-weight:650; margin:0 0 .3rem; padding:0; overflow-wrap:anywhere;}
.wb-gone > div {display:grid; grid-template-columns:5.4rem minmax(0,auto) minmax(0,1fr); gap:0 .8rem; padding:.3rem 0; font-size:.84rem;
  border-top:1px solid color-mix(in srgb, currentColor 12%, transparent); font-variant-numeric:tabular-nums;}
.wb-gone b {font-weight:650; white-space:nowrap;}
.wb-gone code {background:none; padding:0; color:inherit; overflow-wrap:anywhere;}
.wb-gone p {grid-column:2 / -1; margin:0; font-size:.8rem; opacity:.76; overflow:hidden; text-overflow:ellipsis; white-space:nowrap;}
.wb-score {font-variant-numeric:tabular-nums;}
.wb-bar {height:4px; border-radius:2px; margin-top:.3rem; background:color-mix(in srgb, currentColor 12%, transparent);}
.wb-bar > i {display:block; height:4px; border-radius:2px; background:#0072B2;}
.wb-facts {font-size:.78rem; opacity:.8; display:flex; flex-wrap:wrap; gap:.15rem .7rem; margin-bottom:.15rem;}
.wb-facts code {font-size:.78rem; background:none; padding:0; color:inherit;}
.wb-grade {font-weight:650;}
.wb-text {white-space:pre-wrap; overflow-wrap:anywhere; line-height:1.45;}
.wb-result details > summary {list-style:none; cursor:pointer;}
.wb-result details > summary::-webkit-details-marker {display:none;}
.wb-result details:not([open]) > summary .wb-text {display:-webkit-box; -webkit-line-clamp:3; -webkit-box-orient:vertical; overflow:hidden;}
.wb-result details .wb-more {font-size:.78rem; opacity:.75; text-decoration:underline;}
.wb-result details[open] .wb-more {display:none;}
.wb-followed {background:color-mix(in srgb, #0072B2 12%, transparent); box-shadow:inset 3px 0 0 #0072B2;}
.wb-followed .wb-facts::before, .wb-mark {content:"◆"; color:light-dark(#0072B2, #56B4E9);}
.wb-path {font-size:.84rem; border:1px solid color-mix(in srgb, currentColor 16%, transparent); border-radius:.5rem; padding:.6rem .8rem;}
.wb-path code {background:none; padding:0; color:inherit;}
.wb-path table, .wb-probe table {border-collapse:collapse; margin-top:.4rem; width:100%;}
.wb-path th, .wb-path td, .wb-probe th, .wb-probe td {border:0; border-top:1px solid color-mix(in srgb, currentColor 10%, transparent);
  padding:.22rem .6rem .22rem 0; text-align:left; font-weight:400; font-variant-numeric:tabular-nums; vertical-align:top;}
.wb-path thead th, .wb-path thead td {border-top:0; opacity:.65; font-size:.76rem;}
.wb-path tbody th {font-weight:600; white-space:nowrap;}
.wb-path td:nth-child(2), .wb-path td:nth-child(3), .wb-path td:nth-child(4) {white-space:nowrap;}
.wb-path tr.wb-lost td, .wb-path tr.wb-lost th {font-weight:650;}
.wb-path tr.wb-lost th::before {content:"✕ ";}
.wb-probe {font-size:.86rem; max-width:46rem; border:1px solid color-mix(in srgb, currentColor 16%, transparent); border-radius:.5rem; padding:.6rem .8rem;}
.wb-spans {font-size:1.05rem; line-height:1.7; overflow-wrap:anywhere;}
.wb-spans mark {background:color-mix(in srgb, #E69F00 32%, transparent); color:inherit; border-bottom:2px solid #E69F00; border-radius:2px; padding:0 1px;}
.wb-probe th:empty, .wb-probe tr:first-child td {border-top:0; opacity:.72; font-size:.78rem;}
.wb-probe td:nth-child(2), .wb-probe td:nth-child(3), .wb-probe td:nth-child(4) {text-align:right; white-space:nowrap;}
.wb-probe td:last-child {padding-left:1.2rem;}
.wb-stages {display:grid; grid-template-columns:repeat(auto-fit, minmax(12rem,1fr)); gap:1.2rem 1.3rem;}
.wb-stages h4 {font-size:1rem; font-weight:650; margin:0; padding:0 0 .35rem;}
.wb-stages section {min-width:0;}
.wb-stage {display:grid; grid-template-columns:1.5rem minmax(0,1fr) auto auto; column-gap:.55rem; padding:.28rem 0; font-size:.84rem;
  border-top:1px solid color-mix(in srgb, currentColor 12%, transparent); font-variant-numeric:tabular-nums;}
.wb-stage b {font-weight:650; text-align:right;}
.wb-stage code {background:none; padding:0; color:inherit; font-size:.8rem; overflow:hidden; text-overflow:ellipsis; white-space:nowrap;}
.wb-stage span {white-space:nowrap;}
.wb-stage p {grid-column:2 / -1; margin:0; font-size:.8rem; opacity:.76; overflow:hidden; text-overflow:ellipsis; white-space:nowrap;}
.wb-stage.wb-out p {font-style:italic;}
.wb-empty {padding:1.6rem 0 .6rem; max-width:46rem;}
.wb-empty h3 {font-size:1.15rem; margin:0 0 .4rem; padding:0;}
.wb-empty p {margin:0 0 .4rem; opacity:.85;}
.wb-notes {margin-top:.5rem; font-size:.84rem;}
.wb-notes > div {padding:.14rem 0; display:flex; gap:.55rem;}
.wb-notes b {font-weight:600; min-width:5.2rem; opacity:.8;}
.wb-tokens {font-size:.84rem; max-height:26rem; overflow:auto; scrollbar-gutter:stable; container-type:inline-size;}
.wb-tokens table {width:100%; border-collapse:collapse; font-variant-numeric:tabular-nums;}
.wb-tokens :is(th, td) {border:0; border-top:1px solid color-mix(in srgb, currentColor 10%, transparent); padding:.16rem .7rem .16rem 0;
  text-align:left; font-weight:400; overflow-wrap:anywhere;}
.wb-tokens thead th {border-top:0; opacity:.72; font-size:.76rem; cursor:help;}
.wb-tokens :is(td, thead th):nth-child(n+4) {text-align:right; padding-right:.3rem; white-space:nowrap;}
.wb-tokens td:nth-child(3) {white-space:nowrap; width:8.5rem;}
@container (max-width:23rem) {
  .wb-tokens td:nth-child(3) {width:auto;}
  .wb-tokens .wb-cosine {display:block; width:2.8rem; height:.3rem; margin:.25rem 0 0;}
  .wb-tokens :is(th, td) {padding-right:.4rem; overflow-wrap:break-word; hyphens:auto;}
}
.wb-tokens tbody b {font-weight:650;}
.wb-tokens tfoot :is(th, td) {font-weight:650; border-top-color:color-mix(in srgb, currentColor 30%, transparent);}
.wb-quiet {opacity:.66;}
.wb-cosine {display:inline-block; width:4.6rem; height:.62rem; margin-right:.5rem; border-radius:2px; overflow:hidden; vertical-align:-.02rem;
  background:color-mix(in srgb, currentColor 10%, transparent);}
.wb-cosine > i {display:block; height:100%; background:light-dark(#0072B2, #56B4E9);}
.wb-mem-head {display:flex; align-items:baseline; flex-wrap:wrap; gap:.1rem .8rem; padding-top:.7rem;}
.wb-mem-head b {font-size:1.15rem; font-weight:650; font-variant-numeric:tabular-nums;}
.wb-mem-head span {font-size:.84rem; opacity:.7; overflow-wrap:anywhere;}
.wb-mem-hint {font-size:.86rem; opacity:.8; margin:.1rem 0; overflow-wrap:anywhere;}
.wb-mem-title {display:flex; align-items:baseline; gap:.6rem; min-width:0; overflow-wrap:anywhere;}
.wb-mem-title code {font-size:.86rem; background:none; padding:0; color:inherit; opacity:.75;}
.wb-mem-title span {font-size:1.05rem; font-weight:650;}
.wb-mem-facts {display:grid; grid-template-columns:auto minmax(0,1fr); gap:.2rem .9rem; font-size:.86rem;}
.wb-mem-facts span {opacity:.7;}
.wb-mem-facts div {overflow-wrap:anywhere; font-variant-numeric:tabular-nums;}
.wb-mem-text {padding:.1rem 0 .4rem; line-height:1.55;}
.wb-mem-undo {font-size:.9rem;}
.wb-mem-undo code {background:none; padding:0; color:inherit; font-weight:650;}
.wb-mem-numbers {display:grid; grid-template-columns:repeat(8, minmax(0,1fr)); border-radius:.5rem; overflow:hidden;
  border:1px solid color-mix(in srgb, currentColor 16%, transparent);}
@media (max-width:1100px) {.wb-mem-numbers {grid-template-columns:repeat(4, minmax(0,1fr));}}
.wb-mem-numbers > div {padding:.5rem .7rem; min-width:0; box-shadow:1px 1px 0 0 color-mix(in srgb, currentColor 16%, transparent);}
.wb-mem-numbers span {display:block; font-size:.74rem; opacity:.72;}
.wb-mem-numbers b {font-size:1.02rem; font-weight:650; font-variant-numeric:tabular-nums;}
.wb-mem-scroll {max-height:8.6rem; overflow:auto; font-size:.9rem;}
.wb-mem-pairs, .wb-mem-exact {border-top:1px solid color-mix(in srgb, currentColor 12%, transparent);}
.wb-mem-pair {display:grid; grid-template-columns:3.4rem minmax(0,1fr) minmax(0,1fr); gap:1.1rem; padding:.6rem 0;
  border-bottom:1px solid color-mix(in srgb, currentColor 12%, transparent);}
.wb-mem-cosine {font-weight:650; font-variant-numeric:tabular-nums;}
.wb-mem-exact > div {padding:.5rem 0; border-bottom:1px solid color-mix(in srgb, currentColor 12%, transparent);}
.wb-mem-table {width:100%; border-collapse:collapse; font-size:.9rem; font-variant-numeric:tabular-nums;}
.wb-mem-table th {text-align:left; font-weight:400; font-size:.78rem; opacity:.72; padding:.2rem .9rem .35rem 0; border:0;
  border-bottom:1px solid color-mix(in srgb, currentColor 16%, transparent);}
.wb-mem-table td {padding:.5rem .9rem .5rem 0; vertical-align:top; border:0; overflow-wrap:anywhere;
  border-bottom:1px solid color-mix(in srgb, currentColor 12%, transparent);}
.wb-mem-table td span {font-size:.84rem; opacity:.8;}
/* Streamlit's own CSV of a table does not guard cells against spreadsheet formulas; memories are untrusted. */
[data-testid="stElementToolbar"] [aria-label="Download as CSV"] {display:none;}
[data-testid="stMainBlockContainer"] {padding:4.8rem clamp(1.2rem, 3.6vw, 5rem) 3rem;}
/* Streamlit's greys of captions and of a chart's axes are below 4.5 : 1. */
[data-testid="stCaptionContainer"] {opacity:.76;}
[data-testid="stPlotlyChart"] :is(.xtick, .ytick) text, [data-testid="stPlotlyChart"] .xtitle {fill:currentColor !important; fill-opacity:.76;}
.st-key-lists [data-testid="stHorizontalBlock"] {display:grid; grid-template-columns:repeat(auto-fill, minmax(26rem,1fr));}
.st-key-lists [data-testid="stColumn"] {width:auto; min-width:0;}
[class*="st-key-reset-"] button {justify-content:flex-start; text-align:left;}
[data-testid="stSidebarUserContent"] [data-testid="stExpander"] details {border-radius:.4rem;}
[data-testid="stPlotlyChart"] :is(text.bartext, .annotation-text, .hovertext text) {fill:currentColor !important;}
/* White on the light blue of the dark theme is at 2.3 : 1; .stApp says by its color-scheme which theme it is. */
.stApp :is([data-testid="stBaseButton-primary"], [data-testid="stBaseButton-primaryFormSubmit"]):not(:disabled),
.stApp [data-testid="stMultiSelect"] [data-tag] {color:light-dark(#FFFFFF, #12181F);}
.wb-facts {overflow-wrap:anywhere;}
.wb-card {border:1px solid color-mix(in srgb, currentColor 16%, transparent); border-radius:.6rem; overflow:hidden;}
.wb-card > div {padding:.85rem 1.1rem;}
.wb-card-query {background:color-mix(in srgb, currentColor 5%, transparent); border-bottom:1px solid color-mix(in srgb, currentColor 12%, transparent);}
.wb-card span {font-size:.74rem; letter-spacing:.03em; opacity:.72;}
.wb-card p {margin:.15rem 0 .3rem; overflow-wrap:anywhere; white-space:pre-wrap; line-height:1.55;}
.wb-card-query p {font-size:1.15rem; font-weight:650;}
.wb-card h5 {font-size:1rem; margin:.2rem 0 .1rem; padding:0; overflow-wrap:anywhere;}
.wb-card small, .wb-card summary {font-size:.8rem; opacity:.76; overflow-wrap:anywhere;}
.wb-card summary {cursor:pointer;}
.wb-card-memory p {max-height:min(24rem, 40vh); overflow:auto; scrollbar-width:thin; animation:wb-fade linear; animation-timeline:scroll(self);
  mask:linear-gradient(#000, #000) top / 100% 100% no-repeat, linear-gradient(#000, transparent) bottom / 100% 3rem no-repeat;}
@keyframes wb-fade {from {mask-size:100% calc(100% - 3rem), 100% 3rem;} to {mask-size:100% 100%, 100% 3rem;}}
.wb-card mark {background:color-mix(in srgb, #E69F00 26%, transparent); color:inherit; border-bottom:2px solid #E69F00; border-radius:2px;}
.wb-confusion {overflow-x:auto;}
.wb-confusion table {border-collapse:collapse; font-size:.86rem; font-variant-numeric:tabular-nums; border:0;}
.wb-confusion th, .wb-confusion td {border:0; border-bottom:1px solid color-mix(in srgb, currentColor 12%, transparent); padding:.34rem .8rem; text-align:right; white-space:nowrap; font-weight:400;}
.wb-confusion thead th {font-size:.78rem; opacity:.76;}
.wb-confusion tbody th, .wb-confusion thead th:first-child {text-align:left;}
.wb-confusion td[style] {background:color-mix(in srgb, #0072B2 calc(var(--share) * .55), transparent);}
.wb-confusion td b {font-weight:650;}
.wb-confusion small {opacity:.78; margin-left:.45rem; font-size:.76rem;}
.wb-card-progress {margin-bottom:.9rem; font-size:.84rem; font-variant-numeric:tabular-nums;}
.wb-card-progress > div {height:4px; border-radius:2px; background:color-mix(in srgb, currentColor 12%, transparent); margin-bottom:.35rem;}
.wb-card-progress i {display:block; height:4px; border-radius:2px; background:light-dark(#0072B2, #56B4E9);}
.wb-card-progress span {opacity:.82;}
@media (max-width:640px) {
.st-key-lb-grades [data-testid="stHorizontalBlock"] {flex-wrap:wrap; gap:.3rem .6rem;}
.st-key-lb-grades [data-testid="stColumn"] {min-width:44%; flex:1 1 44%;}
.wb-card-memory p {max-height:none; mask:none;}
}
/* The eleven views stand in one line from 900 pixels on. */
@media (max-width:1130px) {.st-key-view button {padding-inline:.26rem;} .st-key-view button p {font-size:.8rem;}}
.wb-facts > * {min-width:0;}
/* The keys of undo and redo are in their tooltips; on the buttons they would take the room of the words. */
.st-key-history kbd {display:none;}
:is(.wb-mem-facts, .wb-mem-numbers, .wb-mem-table, .wb-mem-pair) [title], .wb-mem-hint[title] {cursor:help;}
</style>
"""


def list_colour(source: str, variant: int | None) -> str:
    """The colour of a list: a shade per query variant of its source's colour."""
    shades = SOURCE_COLOURS[source]
    return shades[(variant or 0) % len(shades)]
