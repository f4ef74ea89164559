"""The pictures of docs/page.md."""

import pathlib

from support import Visit, expect


def make(chromium, address, folder):
    """Writes page-chat.png and page-watch.png, 1280 by 800 pixels."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    visit = Visit(chromium, address)
    visit.example("Extraction")
    expect(visit.page.locator("#check")).to_contain_text("Enforced")
    visit.page.screenshot(path=folder / "page-chat.png")
    visit.view("Watch")
    expect(visit.page.locator("#tokens")).to_have_attribute("aria-busy", "false")
    visit.page.get_by_label("Text in place of the selected token").fill("unknown")
    expect(visit.page.locator("#whynot-result del")).to_be_visible()
    visit.page.screenshot(path=folder / "page-watch.png")
    visit.close()
