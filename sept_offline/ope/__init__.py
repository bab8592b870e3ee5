"""Off-policy evaluation: what an agent would have earned, from logs alone."""

from sept_offline.ope.judging import TITLES as TITLES
from sept_offline.ope.judging import Estimate as Estimate
from sept_offline.ope.judging import Judgement as Judgement
from sept_offline.ope.judging import judge as judge
