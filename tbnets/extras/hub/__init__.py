"""Uses Keras Hub presets as image and text networks."""

from tbnets.extras.hub.networks import exported as exported
from tbnets.extras.hub.networks import from_preset as from_preset
from tbnets.extras.hub.presets import PresetEncoder as PresetEncoder
from tbnets.extras.hub.presets import PresetPhotos as PresetPhotos
from tbnets.extras.hub.presets import build_hub_cnn as build_hub_cnn
from tbnets.extras.hub.presets import converter_of as converter_of
from tbnets.extras.hub.presets import files as files
from tbnets.extras.hub.presets import keras_hub as keras_hub
from tbnets.extras.hub.presets import open_preset as open_preset
from tbnets.extras.hub.texts import HubTextEncoder as HubTextEncoder
from tbnets.extras.hub.texts import HubTokenizer as HubTokenizer
from tbnets.extras.hub.texts import TextPreset as TextPreset
