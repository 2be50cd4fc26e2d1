"""A Chromium without a screen, from Debian's packages, led by its driver."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from tests.servers.needed import give_up

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

_PATIENCE_S = 60
FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-extensions",
    # A window that nobody sees is drawn as if somebody did: else its processes get less time than the tests beside them.
    "--disable-renderer-backgrounding", "--disable-backgrounding-occluded-windows", "--disable-background-timer-throttling",
)  # fmt: skip


class Browser:
    """One window. Waits until what is asked for is there; remembers what the console has said."""

    def __init__(self, driver: Chrome) -> None:
        self.driver = driver

    def open(self, address: str, *, width: int = 1200, height: int = 800) -> None:
        """Load an address in a tab that knows nothing of earlier ones."""
        self.driver.get("about:blank")
        self.driver.switch_to.new_window("tab")
        for other in self.driver.window_handles[:-1]:
            self.driver.switch_to.window(other)
            self.driver.close()
        self.driver.switch_to.window(self.driver.window_handles[-1])
        self.driver.execute_cdp_cmd("Page.bringToFront", {})  # a page that nobody sees asks and draws nothing
        self.prefer("light")
        self.resize(width, height)
        self.problems()
        self.driver.get(address)

    def resize(self, width: int, height: int = 800) -> None:
        """Give the page so many CSS pixels, as on a screen of that size."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)

    def prefer(self, scheme: str, motion: str = "reduce") -> None:
        """Be a browser of somebody who prefers these colours, `light` or `dark`, and so much motion."""
        features = [
            {"name": "prefers-color-scheme", "value": scheme},
            {"name": "prefers-reduced-motion", "value": motion},
        ]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

    def run(self, script: str, *arguments: object) -> Any:
        """What a function body of JavaScript returns."""
        return self.driver.execute_script(script, *arguments)

    def wait(self, script: str, *arguments: object) -> Any:
        """What an expression of JavaScript is as soon as it is true."""
        return self.until(lambda: self.run(f"return {script}", *arguments), script)

    def until(self, found: Callable[[], Any], what: str) -> Any:
        """What a function gives as soon as it is true."""
        deadline = time.monotonic() + _PATIENCE_S
        while not (value := found()):
            if time.monotonic() > deadline:
                seen = f"hidden: {self.run('return document.hidden')}, console: {self.problems()}"
                raise AssertionError(f"not true in {_PATIENCE_S} s: {what}\n{seen}\n{self.text()[:3000]}")
            time.sleep(0.05)
        return value

    def see(self, text: str) -> None:
        """Wait until the page shows a text."""
        self.until(lambda: text in self.text(), f"the page shows '{text}'")

    def text(self) -> str:
        """What the page shows."""
        return str(self.run("return document.body.innerText"))

    def click(self, selector: str) -> None:
        """Click as a user does on the first element, once it is there; the page may redraw meanwhile."""
        self.wait("document.querySelector(arguments[0])", selector)
        self.run("document.querySelector(arguments[0]).scrollIntoView({ block: 'center' })", selector)
        self.driver.find_element("css selector", selector).click()

    def press(self, *keys: str) -> None:
        """Press keys, one after the other, wherever the focus is."""
        from selenium.webdriver.common.action_chains import ActionChains

        ActionChains(self.driver, duration=0).send_keys(*keys).perform()

    def problems(self) -> list[str]:
        """What the console has complained of since this was asked last."""
        return [
            str(entry["message"]) for entry in self.driver.get_log("browser") if entry["level"] in {"SEVERE", "WARNING"}
        ]


@pytest.fixture(scope="session")
def chromium_driver() -> Iterator[Chrome]:
    """The browser of the test run."""
    programs = [shutil.which(name) for name in ("chromium", "chromedriver")]
    if None in programs:
        give_up("there is no chromium with its driver: .ci/install_servers installs them")
    selenium = pytest.importorskip("selenium.webdriver", reason="the package selenium is not installed")
    options = selenium.ChromeOptions()
    options.binary_location = programs[0]
    for flag in FLAGS:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = selenium.Chrome(options=options, service=selenium.ChromeService(programs[1]))
    yield driver
    driver.quit()


@pytest.fixture
def browser(chromium_driver: Chrome) -> Browser:
    """The browser; `open` gives it a new tab."""
    return Browser(chromium_driver)
