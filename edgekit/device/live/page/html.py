"""The page and its form for the token, each in one file without anything from other servers."""

from __future__ import annotations

import base64
import hashlib
import re

STYLE = """
  :root { color-scheme: light dark; --paper: #f4f6f7; --card: #fff; --ink: #15202b; --soft: #5b6b79; --line: #dde3e8;
    --accent: #00796b; --on-accent: #fff; --good: #1b7f4d; --warn: #9a6200; --bad: #b3261e; --track: #e8edf0;
    --read: #7aa6c2; --prepare: #c9a227; --model: #00897b; --rules: #a05195;
    --shade: 0 1px 2px #0f20300f, 0 4px 16px #0f20300d }
  @media (prefers-color-scheme: dark) {
    :root { --paper: #0f1519; --card: #182026; --ink: #e6edf2; --soft: #94a5b3; --line: #26323b; --accent: #4db6a5;
      --on-accent: #06231f; --good: #5cc78d; --warn: #e0ac4c; --bad: #f28b82; --track: #24303a;
      --read: #6f9dbb; --prepare: #d2b04a; --model: #4db6a5; --rules: #bd7bb3; --shade: none } }
  * { box-sizing: border-box } [hidden] { display: none !important }
  body { margin: 0; background: var(--paper); color: var(--ink); font: 15px/1.45 system-ui, sans-serif;
    -webkit-text-size-adjust: 100% }
  h1 { font-size: 1.05rem; margin: 0; font-weight: 650; overflow-wrap: anywhere }
  h2 { font-size: .72rem; letter-spacing: .07em; text-transform: uppercase; color: var(--soft); margin: 0 0 .6rem;
    font-weight: 650 }
  button, input { font: inherit; color: inherit }
  button { border: 1px solid var(--line); background: var(--card); border-radius: .6rem; padding: .5rem .9rem;
    cursor: pointer; min-height: 2.6rem }
  button.main { background: var(--accent); color: var(--on-accent); border-color: transparent; font-weight: 600 }
  button:disabled { opacity: .55; cursor: default }
  :focus-visible { outline: 2px solid var(--accent); outline-offset: 2px }
  .card { background: var(--card); border: 1px solid var(--line); border-radius: .9rem; padding: 1rem;
    box-shadow: var(--shade) }
  .note { color: var(--soft); font-size: .86rem }
"""

PAGE = (
    """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1, viewport-fit=cover">
<title>edgerun live</title>
<link rel="icon" href="data:,">
<style>"""
    + STYLE
    + """
  header { display: flex; flex-wrap: wrap; gap: .5rem .8rem; align-items: center;
    padding: .8rem max(1rem, env(safe-area-inset-left));    max-width: 84rem; margin: 0 auto }
  header .right { margin-left: auto; display: flex; gap: .5rem; align-items: center; flex-wrap: wrap }
  .pill { display: inline-flex; gap: .4rem; align-items: center; border-radius: 99rem; padding: .22rem .7rem;
    font-size: .84rem;    border: 1px solid var(--line); background: var(--card); white-space: nowrap }
  .pill::before { content: ""; width: .55rem; height: .55rem; border-radius: 50%; background: var(--soft); flex: none }
  .good::before { background: var(--good) } .warn::before { background: var(--warn) }
  .bad::before { background: var(--bad) }
  main { display: grid; gap: 1rem; padding: 0 1rem 2rem; max-width: 84rem; margin: 0 auto;
    grid-template-columns: minmax(0, 1.75fr) minmax(17rem, 1fr); align-items: start }
  .column { display: grid; gap: 1rem; min-width: 0 }
  #view { padding: 0; overflow: hidden }
  #frame { background: #0b0f12; display: grid; place-items: center; position: relative; min-height: 12rem }
  #picture { display: block; width: 100%; max-height: 72vh; object-fit: contain }
  #nothing { position: absolute; inset: 0; display: grid; place-items: center; color: #b9c6d0; padding: 1rem;
    text-align: center }
  .bar { display: flex; gap: .6rem; align-items: center; flex-wrap: wrap; padding: .75rem 1rem }
  .bar .note { flex: 1 1 12rem; min-width: 0; overflow-wrap: anywhere }
  nav { display: flex; gap: .5rem; overflow-x: auto; padding: .1rem }
  nav button[aria-pressed=true] { border-color: var(--accent); box-shadow: inset 0 0 0 1px var(--accent);
    font-weight: 600 }
  .headline { font-size: 1.7rem; font-weight: 680; line-height: 1.15; overflow-wrap: anywhere }
  .model + .model { margin-top: 1.1rem; padding-top: 1.1rem; border-top: 1px solid var(--line) }
  .rows { display: grid; gap: .5rem; margin-top: .7rem }
  .row { display: grid; grid-template-columns: minmax(0, 1fr) auto; gap: .1rem .6rem; font-size: .92rem }
  .row span:first-child { overflow: hidden; text-overflow: ellipsis; white-space: nowrap }
  .row span:nth-child(2) { font-variant-numeric: tabular-nums; color: var(--soft) }
  .track { grid-column: 1 / -1; height: .32rem; border-radius: 1rem; background: var(--track); overflow: hidden }
  .track i { display: block; height: 100%; border-radius: 1rem; background: var(--accent); transition: width .25s }
  .tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(7.2rem, 1fr)); gap: .8rem }
  .tile b { display: block; font-size: 1.35rem; font-weight: 650; font-variant-numeric: tabular-nums;
    line-height: 1.2 }
  .tile b small { font-size: .8rem; font-weight: 500; color: var(--soft) }
  .stack { display: flex; height: .7rem; border-radius: 1rem; overflow: hidden; background: var(--track);
    margin: .2rem 0 .7rem }
  .stack i { transition: width .25s }
  .key { display: grid; grid-template-columns: auto 1fr auto auto; gap: .25rem .6rem;
    font-size: .88rem; align-items: baseline; font-variant-numeric: tabular-nums }
  .key i { width: .6rem; height: .6rem; border-radius: .2rem; align-self: center }
  .key span:nth-child(4n + 3), .key span:nth-child(4n) { text-align: right }
  .read { background: var(--read) } .prepare { background: var(--prepare) } .model-part { background: var(--model) }
  .rules { background: var(--rules) }
  ol { list-style: none; margin: 0; padding: 0; display: grid; gap: .45rem; max-height: 20rem; overflow-y: auto }
  li { display: grid; grid-template-columns: auto auto minmax(0, 1fr); gap: .6rem; align-items: baseline;
    font-size: .92rem }
  li time { color: var(--soft); font-variant-numeric: tabular-nums; font-size: .84rem }
  li span:last-child { overflow-wrap: anywhere } li small { color: var(--soft) }
  .kind { font-size: .72rem; font-weight: 650; border-radius: .35rem; padding: .05rem .4rem; background: var(--track);
    text-transform: uppercase; letter-spacing: .03em }
  .kind.on { background: var(--accent); color: var(--on-accent) }
  @media (max-width: 52rem) { main { grid-template-columns: minmax(0, 1fr); padding: 0 .75rem 1.5rem; gap: .75rem }
    .column { gap: .75rem } header { padding: .7rem .85rem } header .right { margin-left: 0 }
    #picture { max-height: none } }
  @media (prefers-reduced-motion: reduce) { * { transition: none !important } }
</style>
<header>
  <h1 id="title"></h1>
  <div class="right"><span id="health" class="pill" hidden></span><span id="link" class="pill">connecting</span></div>
</header>
<main>
  <div class="column">
    <section id="view" class="card" aria-label="picture">
      <div id="frame"><img id="picture" alt="" hidden><div id="nothing">waiting for a picture …</div></div>
      <div class="bar"><nav id="sources" aria-label="sources"></nav><span id="status" class="note" role="status"></span>
        <button id="keep" class="main" title="keep this sample, to label it later">Keep this sample</button></div>
    </section>
    <section class="card"><div class="tiles">
      <div class="tile"><h2>Rate</h2><b id="rate">–</b><span class="note" id="rate-note"></span></div>
      <div class="tile"><h2>Latency</h2><b id="total">–</b><span class="note" id="total-note"></span></div>
      <div class="tile"><h2>Dropped</h2><b id="dropped">–</b><span class="note" id="dropped-note"></span></div>
      <div class="tile"><h2>Device</h2><b id="temperature">–</b><span class="note" id="device-note"></span></div>
    </div></section>
  </div>
  <div class="column">
    <section class="card"><h2>Answer</h2>
      <div id="answers"><span class="note">none yet</span></div></section>
    <section class="card"><h2>Where the time goes</h2><div class="stack" id="stack" aria-hidden="true"></div>
      <div class="key" id="key"></div></section>
    <section class="card"><h2>Events</h2><ol id="events"></ol><p class="note" id="no-events">none yet</p></section>
    <section class="card" id="sinks-card" hidden><h2>Sinks</h2><div class="rows" id="sinks"></div></section>
  </div>
</main>
<script>
const facts = {facts};
const $ = id => document.getElementById(id);
const make = (tag, content, kind) => {
  const element = document.createElement(tag);
  if (content !== undefined) element.textContent = content;
  if (kind) element.className = kind;
  return element;
};
const percent = value => value <= 1 ? `${Math.round(100 * value)}%` : value.toPrecision(4);
const milliseconds = value => value === undefined ? "–" : value < 10 ? value.toFixed(1) : Math.round(value);
const parts = ["read", "prepare", "model", "rules"];
const means = {read: "read and wait", prepare: "prepare", model: "model", rules: "answer and rules"};
const kinds = {read: "read", prepare: "prepare", model: "model-part", rules: "rules"};
const remembered = new URLSearchParams(location.hash.slice(1)).get("source");
let chosen = facts.sources.some(each => each.name === remembered) ? remembered : facts.sources[0].name;
let last = null;

$("title").textContent = facts.title;
document.title = `${facts.title} – live`;

function choose(name) {
  chosen = name;
  if (facts.sources.length > 1) history.replaceState(null, "", "#source=" + encodeURIComponent(name));
  for (const button of $("sources").children) button.setAttribute("aria-pressed", button.textContent === name);
  look();
  if (last) show(last);
}

function look() {
  const isPicture = facts.sources.find(each => each.name === chosen).kind === "picture";
  const shown = isPicture && facts.pictures && !document.hidden;
  $("picture").hidden = $("nothing").hidden = true;
  $("frame").hidden = !isPicture;
  if (isPicture) $("nothing").hidden = false;
  if (isPicture && !facts.pictures) $("nothing").textContent = "The picture needs Pillow on the device.";
  if (shown) {
    $("picture").src = `stream.mjpg?source=${encodeURIComponent(chosen)}&at=${Date.now()}`;
    $("picture").alt = `what ${chosen} shows, with the answers`;
  } else $("picture").removeAttribute("src");
}
$("picture").addEventListener("load", () => { $("picture").hidden = false; $("nothing").hidden = true; });
$("picture").addEventListener("error", () => {
  if ($("picture").hasAttribute("src")) setTimeout(look, 2000);
});

if (facts.sources.length > 1)
  for (const source of facts.sources) {
    const button = make("button", source.name);
    button.addEventListener("click", () => choose(source.name));
    $("sources").append(button);
  }
else $("sources").hidden = true;

function pill(element, kind, text) {
  element.className = `pill ${kind}`;
  element.textContent = text;
  element.hidden = false;
}

function answer(each) {
  const block = make("div", undefined, "model");
  if (facts.models > 1) block.append(make("div", each.model, "note"));
  block.append(make("div", each.headline, "headline"));
  const rows = make("div", undefined, "rows");
  for (const [label, value, share] of each.rows) {
    const row = make("div", undefined, "row");
    row.append(make("span", label), make("span", value));
    if (share !== null) {
      const track = make("div", undefined, "track"), inner = make("i");
      inner.style.width = `${Math.round(1000 * Math.min(1, Math.max(0, share))) / 10}%`;
      track.append(inner); row.append(track);
    }
    rows.append(row);
  }
  block.append(rows);
  return block;
}

function show(state) {
  last = state;
  const source = state.sources.find(each => each.name === chosen);
  const first = source.answers[0];
  $("status").textContent = [source.state === "running" ? "" : source.state, source.detail,
    source.width ? `${source.width}×${source.height}` : ""].filter(Boolean).join(" · ");
  if (source.state !== "running" && $("picture").hidden && facts.pictures)
    $("nothing").textContent = source.detail || source.state;
  $("answers").replaceChildren(...source.answers.filter(each => each.headline !== undefined).map(answer));
  if (!$("answers").children.length) $("answers").append(make("span", "none yet", "note"));
  $("rate").textContent = first ? first.rate.toFixed(first.rate < 10 ? 1 : 0) : "–";
  $("rate").append(make("small", " /s"));
  $("rate-note").textContent = first ? `${first.answered} answered` : "";
  const timing = first && first.timing || {};
  $("total").textContent = milliseconds((timing.total || {}).p50);
  $("total").append(make("small", " ms"));
  $("total-note").textContent = timing.total ? `p99 ${milliseconds(timing.total.p99)} ms` : "";
  $("dropped").textContent = source.dropped;
  $("dropped-note").textContent = source.frames ? `of ${source.frames} frames` : "";
  const machine = state.machine;
  const isMeasured = machine.temperature_c !== null;
  $("temperature").textContent = isMeasured ? machine.temperature_c.toFixed(0) : machine.resident_mb ?? "–";
  $("temperature").append(make("small", isMeasured ? " °C" : " MB"));
  $("device-note").textContent = [machine.throttled ? "throttled" : "", machine.under_voltage ? "under-voltage" : "",
    isMeasured ? `${machine.resident_mb} MB of memory` : "of memory"].filter(Boolean).join(", ");
  const whole = parts.reduce((sum, part) => sum + ((timing[part] || {}).p50 || 0), 0);
  $("stack").replaceChildren(...parts.map(part => {
    const inner = make("i", undefined, kinds[part]);
    inner.style.width = `${whole ? 100 * timing[part].p50 / whole : 0}%`;
    return inner;
  }));
  $("key").replaceChildren(make("span"), make("span"), make("span", "p50 ms", "note"), make("span", "p99 ms", "note"),
    ...parts.flatMap(part => [make("i", undefined, kinds[part]), make("span", means[part]),
      make("span", milliseconds((timing[part] || {}).p50)), make("span", milliseconds((timing[part] || {}).p99))]));
  const verdicts = state.models.filter(each => each.verdict);
  const order = ["healthy", "early", "warning", "wrong"];
  verdicts.sort((one, two) => order.indexOf(two.verdict.level) - order.indexOf(one.verdict.level));
  if (verdicts.length) {
    const {level, reason} = verdicts[0].verdict;
    const meaning = {early: "too early to say", healthy: "as in validation", warning: "differs from validation",
      wrong: "the model gives other answers"}[level];
    pill($("health"), {healthy: "good", warning: "warn", wrong: "bad"}[level] || "", `still right? ${meaning}`);
    $("health").title = `${level}: ${reason}`;
  }
  $("sinks-card").hidden = !state.sinks.length;
  $("sinks").replaceChildren(...state.sinks.map(each => {
    const row = make("div", undefined, "row");
    row.append(make("span", each.name), make("span", `${each.sent} sent`));
    const more = [each.state === "running" ? "" : each.state, each.waiting ? `${each.waiting} waiting` : "",
      each.failed ? `${each.failed} failed` : "", each.detail].filter(Boolean).join(" · ");
    if (more) row.append(make("span", more, "note"));
    return row;
  }));
}

function addEvent(event) {
  const item = make("li");
  const time = make("time", new Date(1000 * event.time).toLocaleTimeString(undefined, {hourCycle: "h23"}));
  const score = event.kind === "count" ? event.count : event.score ? percent(event.score) : "";
  const words = [event.label, score].filter(each => each !== "" && each !== undefined);
  const what = make("span", words.join(" ") || event.rule);
  const where = [words.length ? event.rule : "", facts.sources.length > 1 ? event.source : ""].filter(Boolean);
  what.append(make("br"), make("small", where.join(" · ")));
  item.append(time, make("span", event.kind, `kind ${event.kind}`), what);
  $("events").prepend(item);
  while ($("events").children.length > 50) $("events").lastChild.remove();
  $("no-events").hidden = true;
}

let stream = null;
function connect() {
  stream = new EventSource("events");
  stream.addEventListener("open", () => {
    $("events").replaceChildren();
    pill($("link"), "good", "live");
    look();
  });
  stream.addEventListener("state", message => show(JSON.parse(message.data)));
  stream.addEventListener("event", message => addEvent(JSON.parse(message.data)));
  stream.addEventListener("error", () => {
    pill($("link"), "bad", "no connection");
    if (stream.readyState === EventSource.CLOSED) setTimeout(connect, 3000);
  });
}
document.addEventListener("visibilitychange", () => {
  if (document.hidden) { stream.close(); look(); } else connect();
});

$("keep").addEventListener("click", async () => {
  $("keep").disabled = true;
  try {
    const reply = await fetch("keep", {method: "POST", body: new URLSearchParams({source: chosen})});
    const said = await reply.json();
    $("keep").textContent = reply.ok ? "Kept ✓" : "Not kept";
    $("keep").title = said.text || said.error;
    if (!reply.ok) $("status").textContent = said.text || said.error;
  } catch (error) { $("keep").textContent = "No answer"; }
  setTimeout(() => { $("keep").textContent = "Keep this sample"; $("keep").disabled = false; }, 1800);
});
choose(chosen);
connect();
</script>
</html>
"""
).encode()

LOGIN = (
    """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>edgerun live</title>
<link rel="icon" href="data:,">
<style>"""
    + STYLE
    + """
  body { min-height: 100vh; display: grid; place-items: center; padding: 1rem }
  form { display: grid; gap: .8rem; width: min(24rem, 100%) }
  input { border: 1px solid var(--line); border-radius: .6rem; padding: .6rem .8rem; width: 100%;
    background: var(--paper) }
  .bad { color: var(--bad); margin: 0 } label { display: grid; gap: .3rem }
</style>
<form class="card" method="post" action="/login">
  <h1>edgerun live</h1>
  <label>Token <input name="token" type="password" autocomplete="current-password" required autofocus></label>
  <p hidden class="bad">This is not the token.</p>
  <button class="main">Open</button>
  <span class="note">The device has it in the file that <code>edgerun live</code> named when it started.</span>
</form>
</html>
"""
).encode()


def policy(page: bytes) -> dict[str, str]:
    """Return the header that allows a page only its own script, style and server."""
    script, style = (_hashes(page, tag) for tag in (b"script", b"style"))
    directives = (
        "default-src 'none'", f"script-src {script}", f"style-src {style}", "connect-src 'self'",
        "img-src 'self' data:",
        "base-uri 'none'", "form-action 'self'", "frame-ancestors 'none'",
    )  # fmt: skip
    return {"Content-Security-Policy": "; ".join(directives)}


def _hashes(page: bytes, tag: bytes) -> str:
    texts = re.findall(rb"<%b>(.*?)</%b>" % (tag, tag), page, re.DOTALL)
    digests = (base64.b64encode(hashlib.sha256(text).digest()).decode() for text in texts)
    return " ".join(f"'sha256-{digest}'" for digest in digests) or "'none'"
