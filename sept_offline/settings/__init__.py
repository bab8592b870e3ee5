"""All settings: their records, and how values are read and checked.

Nothing here imports torch, so shell completion can list the settings quickly.
"""

from sept_offline.settings.demarcate import MOST_ROUNDS, DemarcateConfig, Unsure
from sept_offline.settings.fit import (
    ALGORITHMS,
    AUTO,
    BOX_ALGORITHMS,
    FINITE_ALGORITHMS,
    REWARDS,
    BnnConfig,
    ControlConfig,
    CsroConfig,
    DptConfig,
    DynamicsConfig,
    EpoptConfig,
    FitConfig,
    FocalConfig,
    LatentConfig,
    MamlConfig,
    ProbeConfig,
    Reward,
    UnicornConfig,
)
from sept_offline.settings.ope import OpeConfig
from sept_offline.settings.values import (
    build,
    check_range,
    merge,
    parse_settings,
    read_toml,
    to_plain,
)

__all__ = [
    "ALGORITHMS",
    "AUTO",
    "BOX_ALGORITHMS",
    "FINITE_ALGORITHMS",
    "MOST_ROUNDS",
    "REWARDS",
    "BnnConfig",
    "ControlConfig",
    "CsroConfig",
    "DemarcateConfig",
    "DptConfig",
    "DynamicsConfig",
    "EpoptConfig",
    "FitConfig",
    "FocalConfig",
    "LatentConfig",
    "MamlConfig",
    "OpeConfig",
    "ProbeConfig",
    "Reward",
    "UnicornConfig",
    "Unsure",
    "build",
    "check_range",
    "merge",
    "parse_settings",
    "read_toml",
    "to_plain",
]
