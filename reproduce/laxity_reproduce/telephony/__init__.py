"""D. Patnaik et al., on enterprise telephony applications on virtualized multi-core platforms.

"Performance Implications of Hosting Enterprise Telephony Applications on Virtualized Multi-Core
Platforms", IPTComm 2009; figures 6 to 10 (beside other virtual machines) and 11 to 13 (turnkey).
"""
