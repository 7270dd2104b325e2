"""Every error and warning of eigenmesh.

::

    EigenmeshError (ValueError)     root: catch this to catch all of ours
    ├── InputError                  what the caller passed does not fit: value, expectation, remedy
    │   ├── NotNumbers (TypeError)  values that are no real numbers
    │   ├── PartitionError          the parties' data do not fit together; names the party
    │   │   └── TooManySamples      ... for a matrix of all pairs of samples
    │   ├── RankError               more components asked for than the data determine
    │   └── TopologyError           a graph that cannot carry the protocol (disconnected, ...)
    ├── MissingPartyShare           a model is used without the share that a party keeps
    ├── ModelFileError              a file that is no eigenmesh model, or a damaged one
    ├── FileNotWritten              a file that cannot be written; what was there is as it was
    ├── LogDamage                   a site's log is not what was written
    └── FederationError             something went wrong between coordinator and parties
        ├── PolicyRefusal           a party's own policy forbids what was asked of it
        ├── MessageRefused          a message failed validation where it arrived
        │   └── StaleRound          ... because its round or run is over
        ├── StepRefused             a role or step that the host does not list
        ├── PartyFailed             a party's step raised
        └── PartyLost               a party gave no answer in time, or is gone

    EigenmeshWarning (UserWarning)  an answer that holds, with a caveat the user should read
    └── LossWarning                 ... since a party left on the way, and the others went on
    CostWarning (UserWarning)       more was sent than shipping would take; not about the answer
"""

from __future__ import annotations


class EigenmeshError(ValueError):
    """Root of every error raised by eigenmesh; `party` names the party concerned, if one is."""

    def __init__(self, message: str, *, party: str | None = None) -> None:
        self.party = party
        self.may_be_caused = False  # by what others had sent to the party
        self.reason = message
        named = party is None or repr(party) in message
        super().__init__(message if named else f"party {party!r}: {message}")


class InputError(EigenmeshError):
    """What the caller passed does not fit."""


class NotNumbers(InputError, TypeError):
    """Values that are no real numbers; a TypeError too, as scikit-learn has it."""


class PartitionError(InputError):
    """The parties' data do not fit together, or one party's data are unusable."""


class TooManySamples(PartitionError):
    """More samples than a matrix of all their pairs can hold."""


class RankError(InputError):
    """More components were asked for than the data determine."""


class TopologyError(InputError):
    """The graph cannot carry the protocol."""


class MissingPartyShare(EigenmeshError):
    """A model is used without the share that a party keeps."""


class ModelFileError(EigenmeshError):
    """The file is not an eigenmesh model, or it is damaged."""


class FileNotWritten(EigenmeshError):
    """A file cannot be written; what was there before is as it was."""


class LogDamage(EigenmeshError):
    """A site's log is not what was written; `line` is the first that is wrong."""

    def __init__(self, message: str, *, line: int = 0, party: str | None = None) -> None:
        super().__init__(message, party=party)
        self.line = line


class FederationError(EigenmeshError):
    """Something went wrong between the coordinator and the parties."""


class PolicyRefusal(FederationError):
    """A party's own policy forbids what was asked of it.

    `rule` names which part of it, `digest` the study that waits for approval.
    """

    def __init__(
        self, message: str, *, party: str | None = None, rule: str = "policy", digest: str = ""
    ) -> None:
        super().__init__(message, party=party)
        self.rule, self.digest = rule, digest


class MessageRefused(FederationError):
    """A message failed validation where it arrived."""


class StaleRound(MessageRefused):
    """A message belongs to a round or a run that is over."""


class StepRefused(FederationError):
    """A role or step that the host does not list."""


class PartyFailed(FederationError):
    """A party's step raised."""


class PartyLost(FederationError):
    """A party gave no answer in time, or is gone."""


class EigenmeshWarning(UserWarning):
    """The answer holds, with a caveat that the user should read."""


class LossWarning(EigenmeshWarning):
    """A party left on the way: the answer is that of the others, and of what it had sent."""


class CostWarning(UserWarning):
    """More was sent than shipping all data to one place would take; the answer is not touched."""
