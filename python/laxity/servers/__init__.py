"""Telephony's servers and parties as processes: Kamailio, SIPp, media servers, and their users."""

from typing import Literal

MediaProgram = Literal["laxity", "rtpengine"]
"""The media server that serves calls: Laxity's own model, or rtpengine."""
