"""The latent: what distinguishes instances, and how to infer it from the first steps."""

from sept_offline.latent.identification import Identification as Identification
from sept_offline.latent.identification import identify as identify
from sept_offline.latent.model import LatentModel as LatentModel
from sept_offline.latent.segment import SegmentLatentStage as SegmentLatentStage
from sept_offline.latent.transitions import TransitionLatentStage as TransitionLatentStage
from sept_offline.latent.transitions import context_latents as context_latents
from sept_offline.latent.window import WindowLatentStage as WindowLatentStage
