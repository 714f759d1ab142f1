#!/usr/bin/env python3
"""Opens report.html in a headless Chromium and checks that it is drawn: charts with lines of points, samples, no fault on the
console, and nothing asked of a network.

    python3 tools/check_report.py OUT/report.html --charts 5 --samples 2
    python3 tools/check_report.py --self-test OUT/report.html ...     also that it finds damage which it is shown
"""
import argparse
import json
import os
import pathlib
import select
import shutil
import subprocess
import sys
import tempfile
import time

SECONDS = 60
MEASURE = """JSON.stringify({
  charts: [...document.querySelectorAll('svg.chart')].map(svg => ({
    title: svg.querySelector('.title').textContent, width: svg.getBoundingClientRect().width, height: svg.getBoundingClientRect().height,
    lines: [...svg.querySelectorAll('polyline')].map(line => ({points: line.points.numberOfItems, width: line.getBBox().width,
      inside: line.getBBox().x >= 0 && line.getBBox().y >= 0 && line.getBBox().x + line.getBBox().width <= svg.viewBox.baseVal.width &&
        line.getBBox().y + line.getBBox().height <= svg.viewBox.baseVal.height}))})),
  samples: [...document.querySelectorAll('table.samples')].slice(0, 1).flatMap(table => [...table.rows].slice(1)
    .map(row => [...row.cells].map(cell => ({text: cell.textContent, height: cell.getBoundingClientRect().height}))))})"""


class Browser:
    """Chromium over its debugging pipe: descriptor 3 takes messages of JSON, each with a null byte behind it; 4 gives them."""

    def __init__(self, directory):
        program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
        if program is None:
            sys.exit("check_report.py: no chromium here; on Debian: apt-get install --no-install-recommends chromium")
        to_read, self.to = os.pipe()
        self.answers, from_write = os.pipe()

        def descriptors():  # copies first: either may be 3 or 4 itself
            ends = [os.dup(to_read), os.dup(from_write)]
            ends = [os.dup(end) if end < 5 else end for end in ends]
            os.dup2(ends[0], 3)
            os.dup2(ends[1], 4)

        self.process = subprocess.Popen(
            [program, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-pipe",
             "--host-resolver-rules=MAP * ~NOTFOUND", f"--user-data-dir={directory}", "--window-size=1400,1200", "about:blank"],
            preexec_fn=descriptors, close_fds=False, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_read)
        os.close(from_write)
        self.number, self.rest, self.events = 0, b"", []

    def _message(self, deadline):
        while b"\0" not in self.rest:
            if not select.select([self.answers], [], [], max(0, deadline - time.monotonic()))[0]:
                sys.exit(f"check_report.py: chromium said nothing for {SECONDS} s")
            read = os.read(self.answers, 1 << 16)
            if not read:
                sys.exit("check_report.py: chromium ended by itself")
            self.rest += read
        message, self.rest = self.rest.split(b"\0", 1)
        return json.loads(message)

    def call(self, method, session=None, **parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters, **({"sessionId": session} if session else {})}
        os.write(self.to, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + SECONDS
        while True:
            answer = self._message(deadline)
            if answer.get("id") == self.number:
                if "error" in answer:
                    sys.exit(f"check_report.py: {method}: {answer['error']}")
                return answer["result"]
            self.events.append(answer)

    def wait_for(self, name):
        deadline = time.monotonic() + SECONDS
        while not any(event.get("method") == name for event in self.events):
            self.events.append(self._message(deadline))

    def close(self):
        os.write(self.to, json.dumps({"id": 0, "method": "Browser.close"}).encode() + b"\0")
        try:
            self.process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()


def inspect(page):
    """What the page measures of itself, and what went wrong: lines."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as directory:
        browser = Browser(directory)
        target = browser.call("Target.createTarget", url="about:blank")["targetId"]
        session = browser.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            browser.call(f"{domain}.enable", session)
        address = pathlib.Path(page).resolve().as_uri()
        browser.call("Page.navigate", session, url=address)
        browser.wait_for("Page.loadEventFired")
        measured = browser.call("Runtime.evaluate", session, expression=MEASURE, returnByValue=True)
        browser.close()
    if "exceptionDetails" in measured:
        return {"charts": [], "samples": []}, [f"cannot be measured: {measured['exceptionDetails']}"]
    faults = []
    for event in browser.events:
        method, told = event.get("method"), event.get("params", {})
        if method == "Runtime.exceptionThrown":
            faults.append(f"exception: {told['exceptionDetails']['text']}")
        elif method == "Runtime.consoleAPICalled" and told["type"] in ("error", "warning", "assert"):
            faults.append(f"console: {told['args']}")
        elif method == "Log.entryAdded" and told["entry"]["level"] in ("error", "warning"):
            faults.append(f"log: {told['entry']['text']}")
        elif method == "Network.requestWillBeSent" and told["request"]["url"] != address:
            faults.append(f"asks for {told['request']['url']}")
    return json.loads(measured["result"]["value"]), faults


def check(page, charts, samples):
    """Prints what the page shows; returns what is wrong with it."""
    shown, faults = inspect(page)
    for chart in shown["charts"]:
        points = [line["points"] for line in chart["lines"]]
        print(f"{chart['title']}: {chart['width']:.0f} x {chart['height']:.0f} pixels, {len(points)} lines of {points} points")
        if chart["width"] < 200 or chart["height"] < 100:
            faults.append(f"{chart['title']}: is not shown")
        if not points or any(line["points"] < 2 or line["width"] <= 0 or not line["inside"] for line in chart["lines"]):
            faults.append(f"{chart['title']}: a line is not drawn: {chart['lines']}")
    if len(shown["charts"]) != charts:
        faults.append(f"{len(shown['charts'])} charts, expected {charts}")
    for row in shown["samples"]:
        print("sample: " + " | ".join(cell["text"][:60].replace("\n", " ") for cell in row))
        if any(cell["height"] < 10 for cell in row) or not row[0]["text"]:
            faults.append("a sample is not shown")
    if len(shown["samples"]) != samples:
        faults.append(f"{len(shown['samples'])} samples, expected {samples}")
    return faults


# Damage, and a part of what is said of it.
DAMAGE = {
    "lines without points": (lambda page: page.replace(' points="', ' data-points="'), "a line is not drawn"),
    "no charts": (lambda page: page.replace('class="chart"', 'class="other"'), "0 charts"),
    "hidden charts": (lambda page: page.replace("</style>", ".charts { display: none }</style>"), "is not shown"),
    "a picture from elsewhere": (lambda page: page.replace("<h1>", '<img src="http://example.org/x.png"><h1>'), "asks for http"),
    "a fault in a script": (lambda page: page.replace("</body>", "<script>nothing.here()</script></body>"), "exception"),
    "an error on the console": (lambda page: page.replace("</body>", "<script>console.error('no')</script></body>"), "console"),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("page", type=pathlib.Path)
    parser.add_argument("--charts", type=int, default=5)
    parser.add_argument("--samples", type=int, default=0)
    parser.add_argument("--self-test", action="store_true")
    arguments = parser.parse_args()
    faults = check(arguments.page, arguments.charts, arguments.samples)
    if arguments.self_test:
        for name, (damage, said) in DAMAGE.items():
            with tempfile.TemporaryDirectory() as directory:
                damaged = pathlib.Path(directory) / "report.html"
                damaged.write_text(damage(arguments.page.read_text()))
                found = inspect_quietly(damaged, arguments)
            if not any(said in fault for fault in found):
                faults.append(f"self-test: {name} is not found; said: {found}")
    for fault in faults:
        print(f"FAULT {fault}")
    sys.exit(1 if faults else 0)


def inspect_quietly(page, arguments):
    out, sys.stdout = sys.stdout, open(os.devnull, "w")
    try:
        return check(page, arguments.charts, arguments.samples)
    finally:
        sys.stdout = out


if __name__ == "__main__":
    main()
