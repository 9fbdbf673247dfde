"""The chat page in headless Chromium, against running processes. Screenshots for people go to build/page-shots."""

import json
import re
import shutil
import time

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect, sync_playwright

from cluster import ROOT, Cluster, default_model, http_get

CHROMIUM = shutil.which("chromium")
if CHROMIUM is None:
    print("test_page.py: no Chromium here (scripts/packages --test installs it)")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium: scripts/packages --test installs it")

SHOTS = ROOT / "build/page-shots"
PATIENCE_MS = 120_000  # for a loaded machine; nothing here measures time
# Longer than what a decode worker would compute by itself (local_prefill_tokens), so it takes two workers.
LONG_QUESTION = "Write one short sentence about each of these: " + ", ".join(
    f"{colour} {thing}" for colour in ("red", "blue", "old", "new") for thing in ("bread", "lamps", "rain", "gardens", "shoes", "trains")
)
DESKTOP = {"viewport": {"width": 1280, "height": 800}}
PHONE = {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True, "device_scale_factor": 2}


@pytest.fixture(scope="module")
def cluster():
    with Cluster(default_model(), threads=0) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def browser():
    SHOTS.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, timeout=PATIENCE_MS, args=["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        )
        yield browser
        browser.close()


@pytest.fixture
def open_page(browser):
    """open_page(url, **context options): the page, once it has asked for the models. At the end: no error in its console."""
    contexts, complaints = [], []

    def open_one(url, **options):
        context = browser.new_context(**{**DESKTOP, **options})
        context.set_default_timeout(PATIENCE_MS)
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("console", lambda m: complaints.append(m.text) if m.type == "error" and "Failed to load" not in m.text else None)
        page.goto(url + "/")
        expect(page.locator("#model option")).not_to_have_text("loading…")
        return page

    expect.set_options(timeout=PATIENCE_MS)
    yield open_one
    for context in contexts:
        context.close()
    assert complaints == []


def ask(page, text):
    page.fill("#question", text)
    page.press("#question", "Enter")


def set_fields(page, **fields):
    page.click("#settings-toggle")
    for name, value in fields.items():
        page.fill("#" + name.replace("_", "-"), str(value))
    page.click("#settings-toggle")


def finished(page):
    expect(page.locator("#send")).to_be_visible()
    expect(page.locator(".answer").last).to_have_attribute("aria-busy", "false")


def figure(page, name):
    return page.locator(f'.turn:last-child [data-figure="{name}"] dd')


def answer_with(page, *chunks, status=200, tail="data: [DONE]\n\n"):
    """The next completions get these chunks instead of the server's."""
    body = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks) + tail
    page.route("**/v1/chat/completions", lambda route: route.fulfill(status=status, content_type="text/event-stream", body=body))


def content(text, finish=None):
    return {"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": finish}]}


def test_an_answer_streams_and_names_its_workers(cluster, open_page):
    page = open_page(cluster.url)
    set_fields(page, temperature=0, max_tokens=40)
    ask(page, LONG_QUESTION)
    expect(page.locator(".question")).to_have_text(LONG_QUESTION)
    finished(page)
    expect(page.locator(".answer")).to_contain_text(re.compile(r"\w"))
    expect(figure(page, "TTFT")).to_contain_text(re.compile(r"^[\d.]+ m?s$"))
    expect(figure(page, "rate")).to_contain_text(re.compile(r"^[\d.]+ tokens/s$"))
    expect(figure(page, "answer")).to_contain_text(re.compile(r"^\d+ tokens$"))
    expect(figure(page, "prefill")).to_have_text(cluster.addresses["prefill-0"])
    expect(figure(page, "decode")).to_have_text(cluster.addresses["decode-0"])


def test_workers_are_named_only_when_asked_for(cluster):
    body = {"prompt": LONG_QUESTION, "max_tokens": 4, "cache_salt": "nothing is cached"}
    want = {"prefill": [cluster.addresses["prefill-0"]], "decode": [cluster.addresses["decode-0"]]}
    assert cluster.post("/v1/completions", {**body, "return_workers": True})["workers"] == want
    assert "workers" not in cluster.post("/v1/completions", body)


def test_settings_go_into_the_request_and_are_kept_over_a_reload(cluster, open_page):
    page = open_page(cluster.url)
    answer_with(page, content("fine", "stop"))
    set_fields(page, system="Be brief.", temperature=0.25, top_p=0.5, max_tokens=7, seed=42)
    page.reload()
    with page.expect_request("**/v1/chat/completions") as sent:
        ask(page, "Hello")
    body = sent.value.post_data_json
    assert (body["temperature"], body["top_p"], body["max_tokens"], body["seed"]) == (0.25, 0.5, 7, 42)
    assert body["messages"] == [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}]
    assert body["model"] == page.input_value("#model")
    finished(page)
    page.click("#settings-toggle")
    page.click("#settings-reset")
    with page.expect_request("**/v1/chat/completions") as sent:
        ask(page, "Again")
    body = sent.value.post_data_json
    assert not {"temperature", "top_p", "max_tokens", "seed"} & body.keys()
    assert [m["content"] for m in body["messages"]] == ["Hello", "fine", "Again"]


def test_a_value_out_of_range_is_shown_instead_of_sent(cluster, open_page):
    page = open_page(cluster.url)
    set_fields(page, temperature=3)
    ask(page, "Hello")
    expect(page.locator("#settings")).to_be_visible()
    expect(page.locator("#temperature")).to_be_focused()
    expect(page.locator(".turn")).to_have_count(0)


@pytest.mark.parametrize("how", ["button", "Escape"])
def test_stop_ends_the_answer_and_keeps_what_came(cluster, open_page, how):
    page = open_page(cluster.url)

    def endless(route):  # otherwise the model might be done before it is stopped
        route.continue_(post_data=json.dumps({**route.request.post_data_json, "ignore_eos": True}))

    page.route("**/v1/chat/completions", endless)
    ask(page, LONG_QUESTION)
    expect(page.locator(".answer")).to_contain_text(re.compile(r"\w"))
    page.click("#stop") if how == "button" else page.keyboard.press("Escape")
    finished(page)
    expect(figure(page, "end")).to_have_text("stopped")
    expect(figure(page, "decode")).to_have_count(1)
    expect(page.locator(".answer")).to_contain_text(re.compile(r"\w"))
    expect(page.locator("#question")).to_be_focused()


def test_a_conversation_is_kept_over_a_reload_and_dropped_by_new_chat(cluster, open_page):
    page = open_page(cluster.url)
    answer_with(page, content("first **answer**", "stop"))
    ask(page, "first question")
    finished(page)
    page.reload()
    expect(page.locator(".question")).to_have_text("first question")
    expect(page.locator(".answer strong")).to_have_text("answer")
    page.click("#new-chat")
    expect(page.locator(".turn")).to_have_count(0)
    page.reload()
    expect(page.locator("#empty")).to_be_visible()


def test_text_of_the_model_never_becomes_markup(cluster, open_page):
    page = open_page(cluster.url)
    evil = '<img src="x" onerror="alert(1)"><script>alert(2)</script> [a](javascript:alert(3)) `<b>` **<i>x</i>**'
    page.on("dialog", lambda dialog: pytest.fail(f"a dialog: {dialog.message}"))
    answer_with(page, content(evil, "stop"))
    ask(page, evil)
    finished(page)
    assert page.locator(".turn :is(img, script, a, b, i)").count() == 0
    expect(page.locator(".answer")).to_contain_text('<img src="x" onerror="alert(1)"><script>alert(2)</script>')
    expect(page.locator(".answer strong")).to_have_text("<i>x</i>")


def test_markdown_in_pieces_looks_like_markdown_at_once(cluster, open_page):
    page = open_page(cluster.url)
    text = (
        "# Title\nLine one\nline *two*\n\n- a\n- b\n  1. deep\n- c\n\n> quoted\n\n---\n\n"
        "```python\ndef f():\n\n    return '# no title'\n```\nSee [docs](https://example.org/x) and snake_case_name, 2 * 3 * 4."
    )
    answer_with(page, *[content(c) for c in text], content("", "stop"))
    ask(page, "markdown")
    finished(page)
    answer = page.locator(".answer")
    expect(answer.locator("h3")).to_have_text("Title")
    expect(answer.locator("em")).to_have_text("two")
    expect(answer.locator("ul > li")).to_have_count(3)
    expect(answer.locator("ul > li > ol > li")).to_have_text("deep")
    expect(answer.locator("blockquote")).to_have_text("quoted")
    expect(answer.locator("hr")).to_have_count(1)
    assert answer.locator("pre code").text_content() == "def f():\n\n    return '# no title'"
    assert answer.locator("a").get_attribute("href") == "https://example.org/x"
    expect(answer.locator("p").last).to_have_text("See docs and snake_case_name, 2 * 3 * 4.")


@pytest.mark.parametrize(
    "chunks, tail, message",
    [
        ([content("half")], "", "closed before the answer was complete"),
        ([content("half"), {"error": {"message": "the worker is gone", "code": 503}}], "data: [DONE]\n\n", "the worker is gone"),
    ],
)
def test_a_broken_answer_says_so_and_can_be_tried_again(cluster, open_page, chunks, tail, message):
    page = open_page(cluster.url)
    answer_with(page, *chunks, tail=tail)
    ask(page, "Hello")
    finished(page)
    expect(page.get_by_role("alert")).to_contain_text(message)
    expect(page.locator(".answer")).to_have_text("half")
    expect(figure(page, "end")).to_have_text("broken off")
    page.unroute("**/v1/chat/completions")
    answer_with(page, content("whole", "stop"))
    page.get_by_role("button", name="Try again").click()
    expect(page.locator(".answer")).to_have_text("whole")
    expect(page.get_by_role("alert")).to_have_count(0)
    expect(page.locator(".turn")).to_have_count(1)


def test_a_server_with_keys_asks_for_one_and_its_errors_are_shown(open_page, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("key-for-tests-1\n")
    with Cluster(default_model(), prefill=0, decode=0, router_args=["--http.api-keys-file", keys]) as lonely:
        wait_live(lonely)
        page = open_page(lonely.url)
        expect(page.locator("#model-facts")).to_contain_text("no API key")
        expect(page.locator("#api-key")).to_be_focused()
        page.fill("#api-key", "key-for-tests-1")
        page.keyboard.press("Tab")
        expect(page.locator("#model")).to_be_enabled()
        ask(page, "Hello")
        expect(page.get_by_role("alert")).to_contain_text("no worker has joined yet")
        page.reload()
        expect(page.locator("#model")).to_be_enabled()  # the key is kept
        lonely.routers[0].stop()
        page.get_by_role("button", name="Try again").click()
        expect(page.get_by_role("alert")).to_contain_text("the server cannot be reached")


def wait_live(cluster):
    deadline = time.monotonic() + 60
    while True:
        try:
            return http_get(cluster.url + "/livez")
        except OSError:
            assert time.monotonic() < deadline, cluster.routers[0].log.read_text()
            time.sleep(0.05)


def test_the_page_needs_nothing_but_its_server(cluster, open_page, browser):
    policies, urls = [], []
    context = browser.new_context()
    page = context.new_page()
    page.on("request", lambda request: urls.append(request.url))
    page.on("response", lambda response: policies.append(response.headers.get("content-security-policy")))
    page.goto(cluster.url + "/")
    expect(page.locator("#model")).to_be_enabled()
    context.close()
    assert policies[0].startswith("default-src 'none'; script-src 'self'; style-src 'self'")
    assert len(urls) >= 8
    assert [url for url in urls if not url.startswith(cluster.url + "/")] == []


LOOKS = {
    "light": {"color_scheme": "light"},
    "dark": {"color_scheme": "dark"},
    "phone": {**PHONE, "color_scheme": "light"},
    "phone-dark": {**PHONE, "color_scheme": "dark"},
}
EXAMPLE = (
    "A list:\n\n- one\n- two\n\nand some `code`:\n\n```python\nprint('a line that is much too long for the screen of a phone, "
    "so that it has to be scrolled inside of its own box')\n```\n\nDone."
)


@pytest.mark.parametrize("look", LOOKS)
def test_looks_right_and_is_accessible(cluster, open_page, look):
    page = open_page(cluster.url, **LOOKS[look])
    shot = lambda name: page.screenshot(path=SHOTS / f"{look}-{name}.png")  # noqa: E731
    check_layout(page)
    shot("empty")
    workers = {"prefill": ["baton-prefill-0:7100"], "decode": ["baton-decode-1:7100"]}
    usage = {"prompt_tokens": 120, "completion_tokens": 64, "prompt_tokens_details": {"cached_tokens": 96}}
    answer_with(page, {**content(EXAMPLE), "workers": workers, "usage": usage}, content("", "stop"))
    ask(page, "Show me what you can do.")
    finished(page)
    page.unroute("**/v1/chat/completions")
    answer_with(page, status=429, tail=json.dumps({"error": {"message": "too many requests wait; try again later"}}))
    ask(page, "And an error?")
    finished(page)
    check_layout(page)
    shot("chat")
    page.click("#settings-toggle")
    check_layout(page)
    shot("settings")
    page.keyboard.press("Escape")
    expect(page.locator("#settings")).to_be_hidden()
    expect(page.locator("#settings-toggle")).to_be_focused()


def check_layout(page):
    assert page.evaluate("() => document.documentElement.scrollWidth <= document.documentElement.clientWidth"), "it overflows"
    wrong = Axe().run(page)
    assert wrong.violations_count == 0, wrong.generate_report()


def test_dark_is_dark_and_the_theme_can_be_chosen(cluster, open_page):
    page = open_page(cluster.url, color_scheme="dark")
    brightness = lambda: page.evaluate(  # noqa: E731
        "() => getComputedStyle(document.body).backgroundColor.match(/\\d+/g).slice(0, 3).reduce((sum, c) => sum + Number(c), 0)"
    )
    assert brightness() < 150
    page.click("#settings-toggle")
    page.select_option("#theme", "light")
    assert brightness() > 600


def test_the_keyboard_is_enough(cluster, open_page):
    page = open_page(cluster.url)
    answer_with(page, content("fine", "stop"))
    expect(page.locator("#question")).to_be_focused()
    page.keyboard.type("one")
    page.keyboard.press("Shift+Enter")
    page.keyboard.type("two")
    page.keyboard.press("Enter")
    finished(page)
    expect(page.locator(".question")).to_have_text("one\ntwo")
    reached = set()
    for _ in range(8):
        page.keyboard.press("Shift+Tab")
        reached.add(page.evaluate("() => document.activeElement.id || document.activeElement.textContent"))
    assert {"model", "new-chat", "settings-toggle", "Try again"} <= reached
