"""Makes the pictures of docs/pictures: the page of a real job, in a real browser. Run by hand, as `python -m docs.screenshots`.

It needs Chromium with its driver (`.ci/install_servers`) and takes about a minute.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

from PIL import Image
from selenium import webdriver

from tests.rest.shown_jobs import run_shown
from tests.servers.chromium import FLAGS, Browser

PICTURES = Path(__file__).parent / "pictures"
PIPELINE = PICTURES / "shop.sql"
LARGEST_BYTES = 100_000
SETTLED_S = 25
"""How long the job runs before the first picture, so that charts and checkpoints have something to show."""


def take(browser: Browser) -> None:
    """All pictures of the job that the browser shows."""

    def picture(
        name: str, *, width: int = 1200, height: int = 800, scheme: str = "light", ready: Callable[[], object]
    ) -> None:
        browser.resize(width, height)
        browser.prefer(scheme)
        ready()
        time.sleep(2)
        browser.run("document.activeElement.blur()")
        file = PICTURES / f"{name}.png"
        taken = Image.open(BytesIO(browser.driver.get_screenshot_as_png())).convert("RGB")
        taken.quantize(256, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(file, optimize=True)
        assert file.stat().st_size < LARGEST_BYTES, f"{file} is too large for a repository"

    vertex = ".vertex[aria-label*='; reads from']"
    picture("graph", ready=lambda: browser.run("document.querySelector('.code').scrollTo(0, 620)"))
    picture("vertex", scheme="dark", ready=lambda: browser.click(f"{vertex} ~ {vertex}"))
    picture("narrow", width=400, height=860, ready=lambda: browser.run("window.scrollTo(0, 0)"))
    picture("checkpoints", ready=lambda: (browser.press("c"), browser.click(".fold")))


def main() -> None:
    """Run the job, look at it, and write the pictures."""
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    for flag in FLAGS:
        options.add_argument(flag)
    with tempfile.TemporaryDirectory() as folder:
        driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))
        try:
            with run_shown(Path(folder) / "shop", PIPELINE.read_text(encoding="utf-8"), PIPELINE.name) as job:
                browser = Browser(driver)
                browser.open(job.address)
                browser.see("shop revenue")
                time.sleep(SETTLED_S)
                take(browser)
        finally:
            driver.quit()


if __name__ == "__main__":
    main()
