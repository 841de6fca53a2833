"""Make the pictures of the page for README and docs from a running `kubectl mooring ui`.

./run demo --keep                                  # prints the address
.venv/bin/python docs/screenshots.py ADDRESS       # writes docs/pictures/page-*.png
"""

import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

_PICTURES = Path(__file__).parent / "pictures"
_VIEWS = {"cluster": "#/cluster?colour=namespace"}


def main() -> None:
    """Take a picture of each view, as wide as the text of a page."""
    [address] = sys.argv[1:]
    with sync_playwright() as playwright:
        # Root has no sandbox in Chromium.
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 900, "height": 560}, color_scheme="light")
        page.goto(address)
        for name, view in _VIEWS.items():
            page.locator("main h1").wait_for()
            page.evaluate("view => { location.hash = view }", view)
            page.locator("main h1", has_text=name.capitalize()).wait_for()
            page.wait_for_timeout(500)
            page.screenshot(path=str(_PICTURES / f"page-{name}.png"))
        browser.close()


if __name__ == "__main__":
    main()
