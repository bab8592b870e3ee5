"""Off-policy evaluation: what an agent would have earned, from logs alone."""

from sept_offline.tools.ope.judgement import TITLES as TITLES
from sept_offline.tools.ope.judgement import Estimate as Estimate
from sept_offline.tools.ope.judgement import Judgement as Judgement
from sept_offline.tools.ope.judgement import judge as judge
