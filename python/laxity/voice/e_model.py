"""The E-model: how good a call is by plan, from its delay and its loss (ITU-T G.107, 06/2015).

Written from the equations of the recommendation, sections 7.1 to 7.5 and annex B. PESQ hears the
damage that loss does to speech but is deaf to delay; the E-model knows both, by the average of what
listeners said.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

BPL_G711_CONCEALED = 25.1
"""Packet-loss robustness of G.711 with the concealment of its appendix I (G.113, appendix I)."""

BPL_G711 = 4.3
"""The same without concealment."""


@dataclass(frozen=True)
class Parameters:
    """The model's inputs with their default values (G.107, table 3)."""

    slr_db: float = 8.0
    """Send loudness rating."""
    rlr_db: float = 2.0
    """Receive loudness rating."""
    stmr_db: float = 15.0
    """Sidetone masking rating."""
    d_send: float = 3.0
    """D-value of the telephone at the send side."""
    d_receive: float = 3.0
    telr_db: float = 65.0
    """Talker echo loudness rating: as with a good echo canceller."""
    wepl_db: float = 110.0
    """Weighted echo path loss."""
    qdu: float = 1.0
    """Quantizing distortion units: one coder and decoder of G.711."""
    ie: float = 0.0
    """Equipment impairment factor of the codec; G.711's is 0 (G.113, appendix I)."""
    bpl: float = BPL_G711_CONCEALED
    nc_dbm0p: float = -70.0
    """Circuit noise."""
    nfor_dbmp: float = -64.0
    """Noise floor at the receive side."""
    ps_dba: float = 35.0
    """Room noise at the send side."""
    pr_dba: float = 35.0
    advantage: float = 0.0

    @property
    def lstr_db(self) -> float:
        """Listener sidetone rating (G.107, note 1 of table 3)."""
        return self.stmr_db + self.d_receive


DEFAULTS = Parameters()


def r_factor(
    delay_ms: float = 0.0,
    loss: float = 0.0,
    burst_ratio: float = 1.0,
    parameters: Parameters = DEFAULTS,
) -> float:
    """The transmission rating R, 0 to 100 (section 7.1).

    `delay_ms` is one way from the mouth to the ear; echo takes the same way back. `loss` is the
    part of packets that are not heard, 0 to 1; `burst_ratio` is how long runs of them are,
    against runs that chance would make (1 and more).
    """
    no_dbm0p = _noise(parameters)
    ro = 15 - 1.5 * (parameters.slr_db + no_dbm0p)  # Section 7.2.
    impairments = (
        _simultaneous(parameters, ro, no_dbm0p, delay_ms)
        + _delayed(parameters, ro, no_dbm0p, delay_ms)
        + _equipment(parameters, 100 * loss, burst_ratio)
    )
    return ro - impairments + parameters.advantage


def mos(r: float) -> float:
    """The mean opinion score of a rating, 1 to 4.5 (annex B)."""
    if r <= 0:
        return 1.0
    if r >= 100:  # noqa: PLR2004 - the scale's end
        return 4.5
    # Just above 0 the cubic dips below 1, where the scale begins.
    return max(1.0, 1 + 0.035 * r + r * (r - 60) * (100 - r) * 7e-6)


def _noise(p: Parameters) -> float:
    """All noise, as circuit noise at the 0 dBr point: No, section 7.2."""
    olr = p.slr_db + p.rlr_db
    send = p.ps_dba - p.slr_db - p.d_send - 100 + 0.004 * (p.ps_dba - olr - p.d_send - 14) ** 2
    effective = p.pr_dba + 10 * math.log10(1 + 10 ** ((10 - p.lstr_db) / 10))
    receive = p.rlr_db - 121 + effective + 0.008 * (effective - 35) ** 2
    floor = p.nfor_dbmp + p.rlr_db
    powers = sum(10 ** (level / 10) for level in (p.nc_dbm0p, send, receive, floor))
    return float(10 * math.log10(powers))


def _simultaneous(p: Parameters, ro: float, no: float, delay_ms: float) -> float:
    """What comes together with speech: loudness, sidetone, quantizing: Is, section 7.3."""
    x = p.slr_db + p.rlr_db + 0.2 * (64 + no - p.rlr_db)
    loud = 20 * ((1 + (x / 8) ** 8) ** (1 / 8) - x / 8)
    echo = math.exp(-delay_ms / 4) * 10 ** (-p.telr_db / 10)
    stmr = -10 * math.log10(10 ** (-p.stmr_db / 10) + echo)
    side = (
        12 * (1 + ((stmr - 13) / 6) ** 8) ** (1 / 8)
        - 28 * (1 + ((stmr + 1) / 19.4) ** 35) ** (1 / 35)
        - 13 * (1 + ((stmr - 3) / 33) ** 13) ** (1 / 13)
        + 29
    )
    q = 37 - 15 * math.log10(p.qdu)
    g = 1.07 + 0.258 * q + 0.0602 * q**2
    y = (ro - 100) / 15 + 46 / 8.4 - g / 9
    z = 46 / 30 - g / 40
    return float(loud + side + 15 * math.log10(1 + 10**y + 10**z))


def _delayed(p: Parameters, ro: float, no: float, delay_ms: float) -> float:
    """Talker's echo, listener's echo, and delay as such: Id, section 7.4."""
    t = delay_ms
    telr = p.telr_db - 40 * math.log10((1 + t / 10) / (1 + t / 150)) + 6 * math.exp(-0.3 * t**2)
    roe, re = -1.5 * (no - p.rlr_db), 80 + 2.5 * (telr - 14)
    talker = ((roe - re) / 2 + math.sqrt((roe - re) ** 2 / 4 + 100) - 1) * (1 - math.exp(-t))
    rle = 10.5 * (p.wepl_db + 7) * (2 * t + 1) ** -0.25
    listener = (ro - rle) / 2 + math.sqrt((ro - rle) ** 2 / 4 + 169)
    absolute = 0.0
    if t > 100:  # noqa: PLR2004 - what nobody notices: mT, default
        x = math.log2(t / 100)
        absolute = 25 * ((1 + x**6) ** (1 / 6) - 3 * (1 + (x / 3) ** 6) ** (1 / 6) + 2)
    return float(talker + listener + absolute)


def _equipment(p: Parameters, loss_percent: float, burst_ratio: float) -> float:
    """The codec, and the loss of its packets: Ie,eff, section 7.5."""
    if loss_percent == 0:
        return p.ie
    return p.ie + (95 - p.ie) * loss_percent / (loss_percent / burst_ratio + p.bpl)
