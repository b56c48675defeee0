"""The server's own page, and the checks that keep web pages of other origins from using the server."""

from __future__ import annotations

import base64
import hashlib
import ipaddress
import re
from collections.abc import Iterable

from edgekit.serve.errors import RequestError

PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>edgekit serve</title>
<style>
  body { font: 16px/1.5 system-ui, sans-serif; max-width: 64rem; margin: 2rem auto; padding: 0 1rem; color: #1a1a1a }
  h1 { font-size: 1.5rem } h2 { font-size: 1.1rem; margin: 2rem 0 .5rem }
  table { border-collapse: collapse; width: 100% }
  th, td { padding: .4rem .6rem; border-bottom: 1px solid #ccc; text-align: left; vertical-align: top }
  td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap }
  .note { color: #555; font-size: .9rem }
  #drop { border: 2px dashed #555; border-radius: .5rem; padding: 2rem; text-align: center; cursor: pointer }
  #drop.over { background: #e8eef7; border-style: solid }
  pre { background: #f4f4f4; padding: 1rem; overflow-x: auto }
  .bad { border-left: .3rem solid #a00 } div.bad { padding-left: .4rem }
  label { display: inline-block; margin: 0 1rem .5rem 0 } form { margin: 1rem 0 .5rem }
  td:first-child { min-width: 12rem } #token { width: 15rem }
  .scroll { overflow-x: auto } textarea { width: 100%; box-sizing: border-box; font: inherit }
</style>
<h1>edgekit serve</h1>
<p id="state" class="note">asking …</p>
<div class="scroll">
<table>
  <thead><tr>
    <th>model</th><th>input</th><th>runs on</th>
    <th class="number">requests</th><th class="number">refused</th>
    <th class="number">p50 ms</th><th class="number">p95 ms</th><th class="number">p99 ms</th>
  </tr></thead>
  <tbody id="models"></tbody>
</table>
</div>
<p class="note">Milliseconds from a request's arrival to its answer, since the server started.
Values are rounded up to steps of 15 %.</p>
<h2>Where the time goes</h2>
<div class="scroll">
<table>
  <thead><tr>
    <th>model</th><th class="number">queue</th><th class="number">preprocess</th>
    <th class="number">execute</th><th class="number">postprocess</th>
  </tr></thead>
  <tbody id="parts"></tbody>
</table>
</div>
<p class="note">p50 / p95 / p99 in milliseconds. The rest of the time is for reading requests and writing answers.</p>
<h2>Try it</h2>
<form id="with">
  <label>model <select id="model"></select></label>
  <label>token <input id="token" type="password" autocomplete="off" placeholder="if the server requires one"></label>
</form>
<div id="drop" tabindex="0" role="button">Drop a file here, or click to choose one
  <input id="file" type="file" hidden></div>
<p id="named" class="note" hidden></p>
<form id="written" hidden>
  <label for="text">or write a text</label><br>
  <textarea id="text" rows="4" required></textarea><br><button>Ask</button>
</form>
<pre id="answer" aria-live="polite" hidden></pre>
<h2>From a terminal</h2>
<pre id="curl"></pre>
<script>
const $ = id => document.getElementById(id);
const text = (tag, value, kind) => {
  const element = document.createElement(tag);
  element.textContent = value;
  if (kind) element.className = kind;
  return element;
};
const headers = () => $("token").value ? {Authorization: "Bearer " + $("token").value} : {};
const digits = value => value < 0.1 ? 3 : value < 10 ? 2 : 0;
const number = value => value === null ? "–" : value.toFixed(digits(value));

async function refresh() {
  try {
    const reply = await fetch("status", {headers: headers()});
    if (!reply.ok) throw new Error((await reply.json()).error);
    const facts = await reply.json();
    $("state").textContent = `version ${facts.version}, ${facts.ready ? "ready" : "not ready"}, ` +
      `${facts.workers} worker${facts.workers === 1 ? "" : "s"}`;
    $("models").replaceChildren(...facts.models.map(model => {
      const row = document.createElement("tr");
      const name = text("td", `${model.name} ${model.version}`);
      name.append(text("div", model.batching, "note"));
      if (model.cache) name.append(text("div",
        `${model.cache}: ${model.cache_hits} hits, ${model.cache_misses} misses`, "note"));
      if (model.watch) name.append(text("div", `${model.watch.level}: ${model.watch.reason}`,
        ["warning", "wrong"].includes(model.watch.level) ? "bad" : "note"));
      row.append(name, text("td", model.input), text("td", model.interpreter),
        text("td", model.requests, "number"), text("td", model.refused, "number"),
        ...[model.p50_ms, model.p95_ms, model.p99_ms].map(each => text("td", number(each), "number")));
      return row;
    }));
    $("parts").replaceChildren(...facts.models.map(model => {
      const row = document.createElement("tr");
      row.append(text("td", `${model.name} ${model.version}`), ...["queue", "preprocess", "execute", "postprocess"].map(
        part => model.parts[part]).map(each => text("td",
        [each.p50_ms, each.p95_ms, each.p99_ms].map(number).join(" / "), "number")));
      return row;
    }));
    const names = facts.models.map(model => model.name);
    if ([...$("model").options].map(each => each.value).join() !== names.join())
      $("model").replaceChildren(...names.map(name => text("option", name)));
    const chosen = facts.models.find(model => model.name === $("model").value);
    $("written").hidden = chosen?.kind !== "text";
    $("named").hidden = chosen?.kind !== "tensors";
    $("named").textContent = chosen ? `A sample is an .npz file of these arrays: ${chosen.input}.` : "";
    $("curl").textContent = `curl -T FILE '${location.origin}/predict?model=${$("model").value || "NAME"}'`;
  } catch (error) {
    $("state").textContent = `no answer: ${error.message}`;
  }
}

async function send(file) {
  const shown = $("answer");
  shown.hidden = false;
  shown.className = "";
  shown.textContent = "asking …";
  try {
    const url = `predict?model=${encodeURIComponent($("model").value)}`;
    const reply = await fetch(url, {method: "POST", headers: headers(), body: file});
    const facts = await reply.json();
    shown.className = reply.ok ? "" : "bad";
    shown.textContent = reply.ok ? JSON.stringify(facts.answers, null, 2) : facts.error;
  } catch (error) {
    shown.className = "bad";
    shown.textContent = `no answer: ${error.message}`;
  }
  refresh();
}

$("drop").addEventListener("click", () => $("file").click());
$("drop").addEventListener("keydown", event => { if (event.key === "Enter") $("file").click(); });
$("written").addEventListener("submit", event => { event.preventDefault(); send($("text").value); });
$("with").addEventListener("submit", event => { event.preventDefault(); refresh(); });
$("file").addEventListener("change", () => {
  if ($("file").files.length) send($("file").files[0]);
  $("file").value = "";  // so that the same file can be chosen again
});
for (const kind of ["dragover", "dragenter"])
  $("drop").addEventListener(kind, event => { event.preventDefault(); $("drop").classList.add("over"); });
$("drop").addEventListener("dragleave", () => $("drop").classList.remove("over"));
$("drop").addEventListener("drop", event => {
  event.preventDefault();
  $("drop").classList.remove("over");
  if (event.dataTransfer.files.length) send(event.dataTransfer.files[0]);
});
$("model").addEventListener("change", refresh);
refresh();
setInterval(refresh, 2000);
</script>
</html>
""".encode()


OWN_SITES = (b"same-origin", b"none")
"""Values of `Sec-Fetch-Site` for requests that no other site caused; `none` means that the user typed the address."""


def check_no_page(headers: Iterable[tuple[bytes, bytes]], host: str) -> None:
    """Raise RequestError for a request that a web page made a browser send.

    Listening on loopback (`host`) is no protection: any page can send requests to 127.0.0.1, for example with a form.
    The browser names the page's origin in such a request.
    """
    check_host(headers, host)
    for name, value in headers:
        if name == b"origin" or (name == b"sec-fetch-site" and value not in OWN_SITES):
            raise RequestError(
                403, f"{name.decode()}: got {value.decode('latin-1')}; this port accepts no requests from web pages"
            )
        if name == b"content-type" and value.partition(b";")[0].strip().lower() != b"application/json":
            raise RequestError(
                415, f"Content-Type: got {value.decode('latin-1')}; use application/json, or send no body"
            )


def check_host(headers: Iterable[tuple[bytes, bytes]], host: str) -> None:
    """Raise RequestError (403) if a port on loopback is addressed under a foreign host name.

    By DNS rebinding, a web page can point its own name to this machine and read the answers. On other addresses nothing
    is checked, because a machine may have many names.
    """
    hosts = [value.decode("latin-1") for name, value in headers if name == b"host"]
    if _is_loopback(host) and not all(_is_own_address(each, host) for each in hosts):
        raise RequestError(403, f"Host: got {', '.join(hosts)}; use localhost, or this machine's address")


def _is_loopback(host: str) -> bool:
    return host == "localhost" or (_is_address(host) and ipaddress.ip_address(host).is_loopback)


def _is_own_address(host_header: str, host: str) -> bool:
    name = re.sub(r":\d*$", "", host_header).strip("[]").lower()
    return name in ("localhost", host.lower()) or _is_address(name)


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def policy(page: bytes) -> list[tuple[bytes, bytes]]:
    """Return the security headers of the page.

    They allow only the page's own script and style, requests only to this server, and no frames.
    """
    script, style = (_hash(page, tag) for tag in (b"script", b"style"))
    directives = (
        "default-src 'none'", f"script-src {script}", f"style-src {style}", "connect-src 'self'", "img-src 'self'",
        "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'",
    )  # fmt: skip
    return [
        (b"content-security-policy", "; ".join(directives).encode()),
        (b"x-content-type-options", b"nosniff"),
        (b"x-frame-options", b"DENY"),
        (b"referrer-policy", b"no-referrer"),
    ]


def _hash(page: bytes, tag: bytes) -> str:
    [text] = re.findall(rb"<%b>(.*?)</%b>" % (tag, tag), page, re.DOTALL)
    return f"'sha256-{base64.b64encode(hashlib.sha256(text).digest()).decode()}'"
