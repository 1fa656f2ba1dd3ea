"""Telephony's servers and parties as processes: Kamailio, SIPp, media servers, and their users."""
