"""A real Prometheus that has scraped the demo and the golden exposition, and evaluated the rules."""

import http.server
import json
import os
import pathlib
import shutil
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.parse
import urllib.request

import golden

RULES = pathlib.Path(__file__).resolve().parents[1] / "rules/warpmeter.rules.yaml"
HISTORY = 3 * 3600


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Live:
    """`demo`: the command that runs the demo. All processes that it starts end with it."""

    def __init__(self, demo, home):
        self.demo, self.home, self.children = demo, pathlib.Path(home), []
        self.url = None

    def __enter__(self):
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for child in reversed(self.children):
            child.terminate()
            try:
                child.wait(20)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()

    def spawn(self, name, command):
        log = open(self.home / f"{name}.log", "wb")
        child = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        self.children.append(child)
        return child

    def start(self):
        now = int(time.time())
        source = golden.Golden(now - HISTORY)
        (self.home / "history.om").write_text("".join(source.history(now)))
        data = self.home / "data"
        subprocess.run(["promtool", "tsdb", "create-blocks-from", "openmetrics", self.home / "history.om", data], check=True, stdout=subprocess.DEVNULL)

        class Exposition(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                text = source.exposition(time.time()).encode()
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *_):
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Exposition)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        demo_port, port = free_port(), free_port()
        self.spawn("demo", [*self.demo, "--duration", "1h", "--listen", f"127.0.0.1:{demo_port}"])
        labels = {key: value for key, value in golden.TARGET.items() if key != "job"}
        shutil.copy(RULES, self.home / "rules.yaml")
        job = lambda **more: {"job_name": "warpmeter", "honor_labels": True, "scrape_interval": "2s", "scrape_timeout": "2s", **more}
        (self.home / "prometheus.yaml").write_text(json.dumps({
            "global": {"evaluation_interval": "5s"},
            "rule_files": ["rules.yaml"],
            # One job of one name: labels tell the two apart. The demo has no `cluster`.
            "scrape_configs": [job(static_configs=[
                {"targets": [f"127.0.0.1:{demo_port}"], "labels": {"node": "demo", "instance": "demo:9408"}},
                {"targets": [f"127.0.0.1:{server.server_address[1]}"], "labels": labels},
            ])],
        }))
        self.spawn("prometheus", ["prometheus", f"--config.file={self.home}/prometheus.yaml", f"--storage.tsdb.path={data}", f"--web.listen-address=127.0.0.1:{port}", "--log.level=warn"])
        self.url = f"http://127.0.0.1:{port}"
        self.wait("Prometheus answers", lambda: self.ask("status/buildinfo"), 60)

    def ask(self, path, **query):
        body = urllib.parse.urlencode(query, doseq=True).encode() if query else None
        try:
            with urllib.request.urlopen(urllib.request.Request(f"{self.url}/api/v1/{path}", body), timeout=60) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise ValueError(json.load(error).get("error", str(error))) from None

    def instant(self, expr):
        return [item for item in self.ask("query", query=expr)["result"] if item["value"][1] != "NaN"]

    def settled(self, expr, tries=5):
        """The answer, asked again for some seconds if there is none: one scrape may have failed on a busy machine."""
        for _ in range(tries):
            if found := self.instant(expr):
                return found
            time.sleep(2)
        return []

    def ranged(self, expr, seconds, step):
        # On multiples of the step, as Grafana asks: series of one panel share their instants.
        now = time.time() // step * step
        result = self.ask("query_range", query=expr, start=now - seconds, end=now, step=step)["result"]
        return [item for item in result if any(value != "NaN" for _, value in item["values"])]

    def values(self, selector, label):
        query = urllib.parse.urlencode({"match[]": selector})
        with urllib.request.urlopen(f"{self.url}/api/v1/label/{label}/values?{query}", timeout=60) as answer:
            return json.load(answer)["data"]

    def wait(self, what, condition, patience):
        until = time.time() + patience
        while True:
            try:
                if condition():
                    return
            except (OSError, ValueError):
                pass
            for child in self.children:
                if child.poll() is not None:
                    logs = "".join(f"--- {log.name}\n{log.read_text(errors='replace')[-2000:]}" for log in self.home.glob("*.log"))
                    raise SystemExit(f"waiting until {what}: {child.args[0]} has ended\n{logs}")
            if time.time() > until:
                raise SystemExit(f"waited {patience} s in vain until {what}")
            time.sleep(0.5)


def tools():
    missing = [tool for tool in ("prometheus", "promtool") if not shutil.which(tool)]
    if missing:
        raise SystemExit(f"{' and '.join(missing)} needed (Debian: apt-get install prometheus)")
    if os.geteuid() != 0:
        raise SystemExit("the demo needs root for the cgroups of its pods: run this as root")
