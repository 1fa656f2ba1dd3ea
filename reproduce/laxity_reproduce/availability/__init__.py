"""Towards High-Availability for IP Telephony using Virtual Machines (IMSAA 2010), with real guests.

The appliances are protected by `laxity protect`, SIPp registers users, streams go through the media
server, and hosts are killed; at the scale that this machine carries.
"""
