"""A browser for the tests of the page, and what every page must hold to."""

import contextlib
import os
import shutil
import sys
import urllib.parse

NO_BROWSER = 75

try:
    from axe_playwright_python.base import AXE_SCRIPT
    from playwright.sync_api import Error, expect, sync_playwright
except ImportError as error:
    print(f"no browser tests: {error}; pip install --no-deps -r tests/browser/requirements.txt", file=sys.stderr)
    sys.exit(NO_BROWSER)

WAIT_MS = 20_000
VIEWS = ["Chat", "Watch", "Constraint", "Engine"]
MOST_BYTES_OF_PAGE = 150_000
expect.set_options(timeout=WAIT_MS)


@contextlib.contextmanager
def browser():
    """Chromium: $CHROMIUM, else that in the path, else playwright's own. Exits with 75 where there is none."""
    names = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"]
    path = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, names)), None)
    with sync_playwright() as playwright:
        try:
            # Without a sandbox of its own: containers often forbid it, and only our own page is opened.
            chromium = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        except Error as error:
            print(f"no browser tests: Chromium doesn't start: {error.message.splitlines()[0]}", file=sys.stderr)
            sys.exit(NO_BROWSER)
        yield chromium
        chromium.close()


class Visit:
    """A page of the server in a window of its own. Collects what must not happen: errors, other origins."""

    def __init__(self, chromium, address, width=1280, height=800, scheme="light", context=None):
        self.address = address
        self.context = context or chromium.new_context(
            viewport={"width": width, "height": height}, color_scheme=scheme
        )
        self.page = self.context.new_page()
        self.page.set_default_timeout(WAIT_MS)
        self.requests = []
        self.errors = []
        self.are_errors_expected = False
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("console", self._console)
        self.response = self.page.goto(address)
        expect(self.page.locator("#model")).to_be_enabled()

    def _console(self, message):
        # A status of 400 is logged by the browser as an error of the network: that is no error of the page.
        if message.type in ("error", "warning") and "Failed to load resource" not in message.text:
            self.errors.append(message.text)

    def close(self):
        """Ends the visit and says what went wrong in it."""
        self.page.close()
        origin = urllib.parse.urlsplit(self.address)
        for url in self.requests:
            parts = urllib.parse.urlsplit(url)
            inside = (parts.scheme, parts.netloc) == (origin.scheme, origin.netloc)
            is_below = parts.path.startswith(origin.path)
            assert parts.scheme == "data" or (inside and is_below), f"a request leaves the server: {url}"
        assert not self.errors or self.are_errors_expected, self.errors

    def view(self, name):
        self.page.get_by_role("tab", name=name).click()
        expect(self.page.get_by_role("tabpanel", name=name)).to_be_visible()

    def example(self, title):
        """Runs an example and waits for its end."""
        self.view("Chat")
        if not self.page.locator("#welcome").is_visible():
            self.page.get_by_role("button", name="New conversation").click()
        self.page.locator(".example", has_text=title).click()
        return self.ended()

    def ask(self, text):
        self.page.get_by_label("Message").fill(text)
        self.page.get_by_role("button", name="Send", exact=True).click()

    def ended(self):
        """The last answer, once it is at its end."""
        answer = self.page.locator(".turn.answer").last
        expect(answer.locator(".facts, [role=alert]").first).to_be_visible()
        expect(self.page.get_by_role("button", name="Send", exact=True)).to_be_enabled()
        return answer

    def constrain(self, kind, text):
        self.page.get_by_role("radio", name=kind).check(force=True)
        self.page.locator("#editor-text").fill(text)

    def has_no_sideways_scroll(self):
        widths = self.page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
        assert widths[0] <= widths[1], f"{widths[0]} pixels on a screen of {widths[1]}"

    def is_accessible(self):
        """No serious finding of axe-core in what is shown now."""
        if not self.page.evaluate("!!window.axe"):
            self.page.evaluate(AXE_SCRIPT)
        found = self.page.evaluate("axe.run(document, {resultTypes: ['violations']})")
        serious = [
            f"{each['id']} ({each['impact']}): {each['help']}: {node['target']} {node['failureSummary']}"
            for each in found["violations"]
            if each["impact"] in ("serious", "critical")
            for node in each["nodes"]
        ]
        assert not serious, "\n".join(serious)
