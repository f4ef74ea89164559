"""Uses the page of a server as people do, in a real browser.

    python tests/browser/page.py ADDRESS [--only WORD] [--screenshots FOLDER]

ADDRESS is that of the page, such as http://127.0.0.1:8000/, of a server with the built-in model. Exit
codes: 0 if all cases pass, 1 if one fails, 75 if there is no browser or package to run them.
"""

import argparse
import inspect
import json
import shlex
import sys
import time
import traceback
import urllib.request

import screenshots
from support import MOST_BYTES_OF_PAGE, VIEWS, Visit, browser, expect

BAD_TYPE = '{\n  "type": "object",\n  "properties": {\n    "age": {"type": "strnig"}\n  }\n}'


def files_of_the_page(open_page):
    """The page is small, has a strict policy, and asks nobody else (`Visit.close` looks)."""
    visit = open_page()
    policy = visit.response.headers["content-security-policy"]
    for rule in ["default-src 'none'", "script-src 'self'", "style-src 'self'", "connect-src 'self'"]:
        assert rule in policy, policy
    assert "unsafe" not in policy, policy
    for view in VIEWS:
        visit.view(view)
    size = visit.page.evaluate(
        """async () => {
            const files = performance.getEntriesByType("resource").map((each) => each.name);
            const ours = [location.href, ...files.filter((name) => name.includes("/ui/"))];
            const texts = await Promise.all(ours.map(async (name) => (await fetch(name)).arrayBuffer()));
            return texts.reduce((sum, text) => sum + text.byteLength, 0);
        }"""
    )
    assert 20_000 < size < MOST_BYTES_OF_PAGE, size


def every_example_is_answered(open_page):
    visit = open_page()
    character = json.loads(visit.example("Game character").locator(".words").inner_text())
    assert character["name"] == "Brakka" and character["strength"] == 17, character
    answer = visit.example("Extraction")
    assert json.loads(answer.locator(".words").inner_text()) == {"name": "Mirela Kovacs", "age": 34, "city": "Trieste"}
    expect(answer).to_contain_text("complete under its constraint")
    expect(visit.example("Sentiment").locator(".words")).to_have_text("negative")
    expect(visit.example("E-mail").locator(".words")).to_have_text("alan.turing@enigma.com")
    expect(visit.example("SQL").locator(".words")).to_have_text("SELECT username, email FROM users;")
    expect(visit.example("Tool call").locator(".call")).to_contain_text('get_weather {"city": "Lisbon"}')
    thought = visit.example("Thinking first")
    expect(thought.locator(".words")).to_have_text("9.8")
    expect(thought.locator(".thoughts")).to_contain_text("9.8 is greater")
    expect(visit.example("No constraint").locator(".words")).to_contain_text("Formwork")


def a_conversation_goes_on(open_page):
    visit = open_page()
    visit.ask("What is Formwork?")
    visit.ended()
    visit.ask("What is the weather in Lisbon?")
    expect(visit.page.locator(".turn.answer")).to_have_count(2)
    visit.ended()
    visit.page.get_by_role("button", name="New conversation").click()
    expect(visit.page.locator(".turn")).to_have_count(0)
    expect(visit.page.get_by_label("Message")).to_be_focused()


def a_tool_gets_its_result(open_page):
    visit = open_page()
    answer = visit.example("Tool call")
    answer.get_by_label("Result of get_weather").fill("sunny, 24 degrees")
    answer.get_by_role("button", name="Give the result").click()
    expect(visit.page.locator(".turn.answer")).to_have_count(2)
    expect(visit.ended().locator(".facts")).to_be_visible()


def errors_stand_at_their_line(open_page):
    visit = open_page()
    page = visit.page
    check = page.locator("#check")
    # Known to the server alone.
    visit.constrain("JSON Schema", BAD_TYPE)
    expect(check).to_contain_text("strnig")
    expect(check.locator(".place")).to_contain_text("Line 4")
    expect(page.locator(".numbers .bad")).to_have_text("4")
    expect(page.locator("#editor-text")).to_have_attribute("aria-invalid", "true")
    check.locator(".place").click()
    expect(page.locator("#editor-text")).to_be_focused()
    before = page.evaluate("(({value, selectionStart}) => value.slice(0, selectionStart))(document.activeElement)")
    assert before.count("\n") == 3, before
    # Sent all the same: refused, said so, and the message isn't lost.
    visit.ask("Who is it?")
    alert = visit.ended().get_by_role("alert")
    expect(alert).to_contain_text("strnig")
    expect(alert.locator(".place")).to_contain_text("Line 4")
    expect(page.get_by_label("Message")).to_have_value("Who is it?")
    # No JSON at all.
    visit.constrain("JSON Schema", '{\n  "type": "object",\n}')
    expect(check.locator(".place")).to_contain_text("Line 3, column 1")
    visit.constrain("Grammar", 'start: "a" word\nother: "b"')
    expect(check.locator(".place")).to_contain_text("Line 1")
    visit.constrain("Pattern", "[a-z")
    expect(check.locator(".place")).to_contain_text("Line 1, column 1")
    visit.constrain(
        "Tools", '[{"type": "function", "function": {"name": "f",\n"parameters": {"type": "object", "properties": {\n"c": {"type": "strnig"}}}}}]'
    )
    expect(check.locator(".place")).to_contain_text("Line 3")
    # Set right, it is quiet again.
    visit.constrain("Pattern", "[a-z]+")
    expect(check).to_contain_text("Enforced")
    expect(page.locator(".numbers .bad")).to_have_count(0)


def warnings_are_shown(open_page):
    visit = open_page()
    visit.constrain("JSON Schema", '{"type": "object",\n "maxProperties": 1,\n "requierd": ["a"]}')
    warning = visit.page.locator("#check .warn")
    expect(warning).to_contain_text("requierd")
    expect(warning.locator(".place")).to_contain_text("Line 3")
    visit.ask("An object?")
    expect(visit.ended().locator(".warn").first).to_contain_text("requierd")


def a_stream_is_cut_off(open_page):
    visit = open_page()
    piece = 'data: {"choices": [{"index": 0, "delta": {"content": "Half an "}, "finish_reason": null}]}\n\n'
    visit.page.route(
        "**/v1/chat/completions",
        lambda route: route.fulfill(status=200, content_type="text/event-stream", body=piece),
        times=1,
    )
    visit.ask("What is Formwork?")
    answer = visit.ended()
    expect(answer.locator(".words")).to_contain_text("Half an")
    expect(answer.get_by_role("alert")).to_contain_text("cut off")
    # A server that isn't there.
    visit.page.route("**/v1/chat/completions", lambda route: route.abort(), times=1)
    visit.ask("What is Formwork?")
    expect(visit.ended().get_by_role("alert")).to_contain_text("can't be reached")
    # An error within the stream.
    error = 'data: {"error": {"message": "the engine failed", "code": 500}}\n\ndata: [DONE]\n\n'
    visit.page.route(
        "**/v1/chat/completions",
        lambda route: route.fulfill(status=200, content_type="text/event-stream", body=piece + error),
        times=1,
    )
    visit.ask("What is Formwork?")
    expect(visit.ended().get_by_role("alert")).to_contain_text("the engine failed")
    # The page goes on.
    visit.page.get_by_role("button", name="New conversation").click()
    visit.ask("What is Formwork?")
    expect(visit.ended().locator(".words")).to_contain_text("Formwork")


def an_answer_is_stopped(open_page):
    visit = open_page()
    page = visit.page
    page.get_by_text("Settings").click()
    page.get_by_label("Most tokens of an answer").fill("1800")
    visit.constrain("Pattern", "(a|b| ){1500}")
    # The built-in model is quick: the button is pressed as soon as the first words are there.
    page.evaluate(
        """() => new MutationObserver((_, observer) => {
            if (!document.querySelector(".turn.answer .words")?.textContent) return;
            observer.disconnect();
            document.getElementById("stop").focus();
            document.getElementById("stop").click();
        }).observe(document.getElementById("turns"), {subtree: true, childList: true})"""
    )
    visit.ask("Go on")
    stop = page.get_by_role("button", name="Stop")
    expect(page.locator(".turn.answer")).to_contain_text("Stopped.")
    expect(stop).to_be_hidden()
    expect(page.get_by_label("Message")).to_be_focused()
    page.get_by_role("radio", name="None").check(force=True)
    page.get_by_role("button", name="New conversation").click()
    visit.ask("What is Formwork?")
    expect(visit.ended().locator(".words")).to_contain_text("Formwork")


def text_is_never_html(open_page):
    visit = open_page()
    text = "<img src=x onerror=alert(1)><b>bold</b>"
    trace = {"token_id": 1, "token": text, "bytes": list(text.encode()), "probability": 0.5, "masked_probability": 0.5}
    trace |= {"num_allowed": 2, "is_constrained": True, "is_forced": False, "step_ms": 1.0}
    trace |= {"top": [{"token_id": 2, "token": text, "probability": 0.5, "is_allowed": False}]}
    choice = {"index": 0, "delta": {"content": text, "reasoning_content": text}, "trace": [trace], "finish_reason": "stop"}
    body = f"data: {json.dumps({'choices': [choice], 'warnings': [text]})}\n\ndata: [DONE]\n\n"
    visit.page.route(
        "**/v1/chat/completions",
        lambda route: route.fulfill(status=200, content_type="text/event-stream", body=body),
        times=1,
    )
    visit.ask(text)
    expect(visit.ended().locator(".words")).to_have_text(text)
    visit.view("Watch")
    expect(visit.page.locator("#detail s")).to_contain_text("<img")
    assert visit.page.locator("main img, main b").count() == 0


def two_tabs(open_page):
    """Two tabs of one window: each has its own constraint, and both are answered at the same time."""
    first = open_page()
    second = open_page(context=first.context)
    first.constrain("Choice", "yes\nno")
    second.constrain("Pattern", "[0-9]{3}")
    first.ask("Is it?")
    second.ask("A number?")
    assert first.ended().locator(".words").inner_text() in ("yes", "no")
    number = second.ended().locator(".words").inner_text()
    assert number.isdigit() and len(number) == 3, number
    expect(first.page.locator("#editor-text")).to_have_value("yes\nno")


def a_reload_keeps_the_constraint(open_page):
    visit = open_page()
    visit.constrain("Choice", "left\nright")
    expect(visit.page.locator("#check")).to_contain_text("Enforced")
    visit.view("Constraint")
    visit.page.reload()
    expect(visit.page.get_by_role("tabpanel", name="Constraint")).to_be_visible()
    expect(visit.page.get_by_role("radio", name="Choice")).to_be_checked()
    expect(visit.page.locator("#editor-text")).to_have_value("left\nright")


def an_answer_is_watched(open_page):
    visit = open_page()
    page = visit.page
    visit.view("Watch")
    page.get_by_role("button", name="Watch an example").click()
    expect(page.locator("#tokens")).to_have_attribute("aria-busy", "false")
    chips = page.locator("#tokens [role=option]")
    text = "".join(chips.all_inner_texts()).replace("·", " ")
    assert '"name": "Mirela Kovacs"' in text, text
    page.locator("#tokens [aria-selected=true]").click()
    page.keyboard.press("Home")
    expect(chips.first).to_be_focused()
    expect(page.locator("#detail")).to_contain_text("token 1,")
    page.keyboard.press("ArrowRight")
    expect(page.locator("#detail")).to_contain_text("token 2,")
    page.keyboard.press("End")
    expect(chips.last).to_be_focused()
    expect(page.locator("#watch-totals")).to_contain_text("Forced")
    assert page.locator("#times rect").count() == chips.count()
    # Some token had likely ones taken away, and they are struck through.
    struck = 0
    for chip in chips.all():
        chip.click()
        struck += page.locator("#detail s").count()
    assert struck > 0
    page.get_by_label("Colour", exact=True).select_option("after the mask")


def why_not(open_page):
    visit = open_page()
    page = visit.page
    visit.example("Sentiment")
    visit.view("Watch")
    page.locator("#tokens [role=option]").first.click()
    page.get_by_label("Text in place of the selected token").fill("pos")
    result = page.locator("#whynot-result")
    expect(result).to_contain_text("It fits so far")
    expect(result.locator("ins")).to_have_text("pos")
    page.get_by_label("Text in place of the selected token").fill("post")
    expect(result).to_contain_text("stops fitting")
    expect(result.locator("del")).to_have_text("t")
    expect(result.locator(".expected")).to_contain_text("i")
    page.get_by_label("Text in place of the selected token").fill("positive")
    expect(result).to_contain_text("A whole answer")
    # Thinking is free, and no part of the text that the constraint holds for.
    visit.example("Thinking first")
    visit.view("Watch")
    page.locator("#tokens [role=option]").first.click()
    expect(result).to_contain_text("No constraint was in force at this token")
    page.locator("#tokens [role=option]", has_text="</think>").click()
    page.keyboard.press("ArrowRight")
    page.get_by_label("Text in place of the selected token").fill("9.7")
    expect(result.locator("ins")).to_have_text("9.")


def the_constraint_is_explained(open_page):
    visit = open_page()
    page = visit.page
    visit.view("Constraint")
    page.get_by_role("radio", name="JSON Schema").check(force=True)
    report = page.locator("#report")
    expect(report).to_contain_text("enforced")
    expect(report).to_contain_text("properties")
    expect(report).to_contain_text("The shortest answer")
    shortest = json.loads(report.locator(".fit").first.inner_text())
    assert set(shortest) == {"name", "age", "city"}, shortest
    report.get_by_role("button", name="Test it").first.click()
    result = page.locator("#try-result")
    expect(result).to_contain_text("A whole answer")
    page.get_by_label("An answer, or its beginning").fill('{"name": "a", "age": "x')
    expect(result).to_contain_text("stops fitting at line 1, column 22")
    visit.constrain("JSON Schema", BAD_TYPE)
    expect(report).to_contain_text("refused")


def the_engine_is_seen(open_page):
    visit = open_page()
    page = visit.page
    visit.view("Engine")
    gauge = page.get_by_role("region", name="Running")
    expect(gauge.locator("strong")).to_have_text("0")
    expect(gauge.locator("svg .line")).to_be_attached()
    expect(page.locator("#engine-totals")).to_contain_text("Output tokens")
    polls = lambda: sum(url.endswith("/metrics") for url in visit.requests)
    page.wait_for_timeout(2500)
    assert polls() >= 2, polls()
    page.get_by_role("button", name="Pause").click()
    page.wait_for_timeout(300)
    before = polls()
    page.wait_for_timeout(1800)
    assert polls() == before, "it polls though it is paused"
    page.get_by_role("button", name="Pause").click()
    visit.view("Chat")
    page.wait_for_timeout(300)
    before = polls()
    page.wait_for_timeout(1800)
    assert polls() == before, "it polls though nobody sees it"


def a_command_works(open_page):
    """What "Copy as curl" shows can be sent as it stands."""
    visit = open_page()
    visit.example("Extraction")
    visit.page.get_by_label("Message").fill("It's Ann, 7, of Rome. Who's that?")
    visit.page.get_by_role("button", name="Copy as curl").click()
    words = shlex.split(visit.page.get_by_role("textbox", name="Command").input_value().replace("\\\n", ""))
    assert words[0] == "curl" and words[2:4] == ["-H", "Content-Type: application/json"], words
    request = urllib.request.Request(words[1], words[5].encode(), {"Content-Type": "application/json"})
    answer = json.load(urllib.request.urlopen(request))
    assert "city" in json.loads(answer["choices"][0]["message"]["content"]), answer
    assert json.loads(words[5])["messages"][-1]["content"].startswith("It's Ann")
    visit.page.keyboard.press("Escape")
    expect(visit.page.get_by_role("button", name="Copy as curl")).to_be_focused()


def every_width_fits(open_page):
    for width in (320, 768, 1440):
        visit = open_page(width=width, height=700)
        visit.has_no_sideways_scroll()
        visit.example("Game character")
        for view in VIEWS:
            visit.view(view)
            visit.page.wait_for_timeout(400)
            visit.has_no_sideways_scroll()


def axe_finds_nothing_serious(open_page):
    for scheme, width in (("light", 1280), ("dark", 1280), ("light", 320)):
        visit = open_page(scheme=scheme, width=width)
        visit.is_accessible()
        visit.example("Extraction")
        visit.page.get_by_text("Settings").click()
        for view in VIEWS:
            visit.view(view)
            visit.page.wait_for_timeout(700)
            visit.is_accessible()
        visit.view("Chat")
        visit.constrain("JSON Schema", BAD_TYPE)
        expect(visit.page.locator("#check .place")).to_be_visible()
        visit.is_accessible()


def light_and_dark(open_page):
    grounds = []
    for scheme in ("light", "dark"):
        page = open_page(scheme=scheme).page
        colour = page.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).slice(0, 3).map(Number)")
        grounds.append(sum(colour))
    assert grounds[0] > 600 and grounds[1] < 150, grounds


def keyboard_alone(open_page):
    """From the first Tab to a token's neighbour without a pointer."""
    visit = open_page()
    page = visit.page
    press = page.keyboard.press

    def tab_to(selector, most=40):
        for _ in range(most):
            press("Tab")
            if page.evaluate(f"document.activeElement.matches({json.dumps(selector)})"):
                return
        raise AssertionError(f"no way to {selector} by Tab")

    press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    press("Tab")
    expect(page.get_by_role("tab", name="Chat")).to_be_focused()
    press("ArrowRight")
    expect(page.get_by_role("tabpanel", name="Watch")).to_be_visible()
    press("End")
    expect(page.get_by_role("tabpanel", name="Engine")).to_be_visible()
    press("ArrowRight")
    expect(page.get_by_role("tabpanel", name="Chat")).to_be_visible()
    tab_to("input[name=kind]")
    for _ in range(3):
        press("ArrowRight")
    expect(page.get_by_role("radio", name="Choice")).to_be_checked()
    press("Tab")
    expect(page.locator("#editor-text")).to_be_focused()
    press("Control+A")
    page.keyboard.type("red\ngreen")
    press("Shift+Tab")
    for _ in range(40):
        press("Shift+Tab")
        if page.evaluate("document.activeElement.id") == "message":
            break
    page.keyboard.type("A colour?")
    press("Enter")
    answer = visit.ended()
    assert answer.locator(".words").inner_text() in ("red", "green")
    expect(page.locator("#announcer")).to_contain_text("Answer: ")
    for _ in range(40):
        press("Shift+Tab")
        if page.evaluate("document.activeElement.textContent") == "Watch this answer":
            break
    press("Enter")
    expect(page.get_by_role("tab", name="Watch")).to_be_focused()
    tab_to("[role=option]")
    press("ArrowRight")
    press("Home")
    expect(page.locator("#tokens [role=option]").first).to_be_focused()
    tab_to("#whynot-text")
    page.keyboard.type("gr")
    expect(page.locator("#whynot-result ins")).to_have_text("gr")


CASES = [each for each in list(globals().values()) if inspect.isfunction(each) and each.__module__ == __name__]


def run(case, chromium, address):
    visits = []

    def open_page(**options):
        visits.append(Visit(chromium, address, **options))
        return visits[-1]

    start = time.monotonic()
    try:
        case(open_page)
        for visit in visits:
            visit.close()
    except Exception:
        print(f"FAILED {case.__name__}\n{traceback.format_exc()}", flush=True)
        for visit in visits:
            print(f"errors on the page: {visit.errors}", flush=True)
        return False
    finally:
        for visit in visits:
            visit.context.close()
    print(f"ok {case.__name__} ({time.monotonic() - start:.1f} s)", flush=True)
    return True


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("address")
    parser.add_argument("--only", default="", help="cases whose name has this word")
    parser.add_argument("--screenshots", help="makes the pictures of the docs in this folder, and tests nothing")
    arguments = parser.parse_args()
    address = arguments.address.rstrip("/") + "/"
    with browser() as chromium:
        if arguments.screenshots:
            screenshots.make(chromium, address, arguments.screenshots)
            return 0
        results = [run(case, chromium, address) for case in CASES if arguments.only in case.__name__]
    print(f"{sum(results)} of {len(results)} cases passed")
    return 0 if results and all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
