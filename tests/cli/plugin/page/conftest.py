"""Chromium, in which what a page shows is waited for as long as a busy machine takes."""

from collections.abc import AsyncIterator

import pytest
from playwright.async_api import Browser, async_playwright, expect

from tests.support.polling import LIMIT_S


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    # By default 5 s.
    expect.set_options(timeout=1000 * LIMIT_S)
    async with async_playwright() as playwright:
        # Root has no sandbox in Chromium.
        browser = await playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        yield browser
        await browser.close()
