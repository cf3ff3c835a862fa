"""The stylesheet of the tools that show texts, terms and small matrices; written onto the page by the tool that is looked at."""

from __future__ import annotations

import streamlit as st

_STYLESHEET = """
<style>
.wb-scroll {overflow-x:auto; scrollbar-gutter:auto;}
.wb-grid {width:100%; border-collapse:collapse; font-size:.86rem; font-variant-numeric:tabular-nums;}
.wb-grid :is(th, td) {border:0; border-top:1px solid color-mix(in srgb, currentColor 10%, transparent); padding:.24rem .8rem .24rem 0;
  text-align:left; font-weight:400; vertical-align:top; overflow-wrap:anywhere; min-width:2.6rem;}
.wb-grid thead th {border-top:0; opacity:.74; font-size:.76rem; cursor:help; white-space:nowrap; overflow-wrap:normal;}
.wb-grid .wb-n {text-align:right; white-space:nowrap; overflow-wrap:normal;}
.wb-grid tbody b {font-weight:650;}
.wb-grid tfoot :is(th, td) {font-weight:650; border-top-color:color-mix(in srgb, currentColor 32%, transparent);}
.wb-grid code {background:none; padding:0; color:inherit; font-size:.8rem;}
.wb-share {display:inline-block; width:4.2rem; height:.62rem; margin-right:.5rem; border-radius:2px; overflow:hidden;
  vertical-align:-.02rem; background:color-mix(in srgb, currentColor 10%, transparent);}
.wb-share > i {display:block; height:100%; background:light-dark(#0072B2, #56B4E9);}
.wb-grid .wb-bar-cell {white-space:nowrap;}
.wb-said {font-size:.84rem; padding:.35rem 0 0; overflow-wrap:anywhere;}
.wb-said span {opacity:.8;}
.wb-whole {max-height:26rem; overflow:auto; white-space:pre-wrap; overflow-wrap:anywhere; line-height:1.6; font-size:.92rem;
  border:1px solid color-mix(in srgb, currentColor 16%, transparent); border-radius:.5rem; padding:.6rem .8rem;}
:is(.wb-whole, .wb-key) mark, .wb-key mark {background:color-mix(in srgb, #E69F00 30%, transparent); color:inherit;
  text-decoration:underline 2px #E69F00; text-underline-offset:3px; border-radius:2px; padding:0 1px;}
.wb-whole .wb-unread {opacity:.7;}
.wb-edge {font-size:.72rem; font-weight:650; white-space:nowrap; padding:0 .35rem; margin:0 .15rem; border-radius:.25rem; cursor:help;
  border:1px solid light-dark(#0072B2, #56B4E9); color:light-dark(#005A8D, #8EC7E8);}
.wb-key {display:flex; flex-wrap:wrap; gap:.15rem 1.1rem; font-size:.8rem; padding-bottom:.35rem;}
.wb-key span {opacity:.86;}
.wb-heat-text {line-height:2; font-size:.9rem; overflow-wrap:anywhere; max-height:20rem; overflow:auto;}
.wb-heat-text span {border-radius:2px; padding:.1rem .05rem;}
.wb-heat-text .wb-met {text-decoration:underline 2px; text-underline-offset:4px; font-weight:650;}
.wb-heat-text sup {font-size:.62rem; font-weight:650; padding-left:1px;}
.wb-matrix {border-collapse:separate; border-spacing:2px; font-size:.78rem; font-variant-numeric:tabular-nums;}
.wb-matrix :is(th, td) {border:0; padding:.2rem .3rem; text-align:center; font-weight:400; min-width:2.5rem; border-radius:3px;}
.wb-matrix th {white-space:nowrap;}
.wb-matrix tbody th {text-align:left; padding-right:.6rem; max-width:14rem; overflow:hidden; text-overflow:ellipsis;}
.wb-matrix td.wb-self {background:none; opacity:.5;}
.wb-matrix td b {font-weight:700; text-decoration:underline;}
</style>
"""


def write_stylesheet() -> None:
    """Put the rules on the page; takes no room."""
    st.html(_STYLESHEET)
