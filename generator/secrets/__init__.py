"""What a secret is, and text without it: the only judge of that, for planning, checking and all that is shown."""

from .hide import Hider as Hider
from .hide import mask as mask
from .hide import mask_sure as mask_sure
from .names import Likeness as Likeness
from .names import likeness as likeness
from .names import patterns as patterns
from .scan import Secret as Secret
from .scan import find as find
from .values import holds as holds
