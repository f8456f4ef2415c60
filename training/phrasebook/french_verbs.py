"""French conjugation: present, future and past participle of the grammar's verbs."""

from dataclasses import dataclass
from functools import cache

FUTURE_ENDINGS = ("ai", "a", "ons", "ont")

# je, il, nous, ils | stem of the future | participle
IRREGULAR = """
aller | vais va allons vont | ir | allé
apprendre | apprends apprend apprenons apprennent | apprendr | appris
attendre | attends attend attendons attendent | attendr | attendu
avoir | ai a avons ont | aur | eu
boire | bois boit buvons boivent | boir | bu
conduire | conduis conduit conduisons conduisent | conduir | conduit
connaître | connais connaît connaissons connaissent | connaîtr | connu
construire | construis construit construisons construisent | construir | construit
courir | cours court courons courent | courr | couru
cueillir | cueille cueille cueillons cueillent | cueiller | cueilli
comprendre | comprends comprend comprenons comprennent | comprendr | compris
détruire | détruis détruit détruisons détruisent | détruir | détruit
dormir | dors dort dormons dorment | dormir | dormi
écrire | écris écrit écrivons écrivent | écrir | écrit
entendre | entends entend entendons entendent | entendr | entendu
envoyer | envoie envoie envoyons envoient | enverr | envoyé
être | suis est sommes sont | ser | été
lire | lis lit lisons lisent | lir | lu
ouvrir | ouvre ouvre ouvrons ouvrent | ouvrir | ouvert
peindre | peins peint peignons peignent | peindr | peint
perdre | perds perd perdons perdent | perdr | perdu
pouvoir | peux peut pouvons peuvent | pourr | pu
prendre | prends prend prenons prennent | prendr | pris
recevoir | reçois reçoit recevons reçoivent | recevr | reçu
rire | ris rit rions rient | rir | ri
sourire | souris sourit sourions sourient | sourir | souri
tenir | tiens tient tenons tiennent | tiendr | tenu
traduire | traduis traduit traduisons traduisent | traduir | traduit
vendre | vends vend vendons vendent | vendr | vendu
voir | vois voit voyons voient | verr | vu
vouloir | veux veut voulons veulent | voudr | voulu
"""
# Verbs in -er with a mute e or é before the last consonant: acheter, achète; préférer, préfère.
OPENING = {
    "acheter": ("achèt", "achèter"),
    "préférer": ("préfèr", "préférer"),
    "protéger": ("protèg", "protéger"),
}
WITH_ETRE = {"aller", "retourner", "arriver", "rester", "entrer"}


@dataclass(frozen=True)
class Conjugation:
    """Forms for je, il, nous, ils; `etre` verbs build their past with être."""

    infinitive: str
    present: tuple[str, ...]
    future: tuple[str, ...]
    past_participle: str
    etre: bool


def _regular(verb: str) -> tuple[tuple[str, ...], str, str]:
    """Present, stem of the future, and participle of verbs in -er and of those like finir."""
    stem = verb[:-2]
    if verb.endswith("ir"):
        return (stem + "is", stem + "it", stem + "issons", stem + "issent"), verb, stem + "i"
    if not verb.endswith("er"):
        raise ValueError(f"{verb!r} needs a row among the irregular verbs")
    singular, future = OPENING.get(verb, (stem, verb))
    if verb.endswith("oyer"):
        singular = stem[:-1] + "i"
        future = singular + "er"
    plural = stem
    if stem.endswith("g"):
        plural = stem + "e"
    elif stem.endswith("c"):
        plural = stem[:-1] + "ç"
    return (singular + "e", singular + "e", plural + "ons", singular + "ent"), future, stem + "é"


@cache
def _irregular() -> dict[str, tuple[tuple[str, ...], str, str]]:
    rows = ([part.strip() for part in line.split("|")] for line in IRREGULAR.strip().splitlines())
    return {
        verb: (tuple(present.split()), future, participle)
        for verb, present, future, participle in rows
    }


@cache
def conjugate(verb: str) -> Conjugation:
    """The forms of a verb, given its infinitive."""
    present, future, participle = _irregular().get(verb) or _regular(verb)
    return Conjugation(
        infinitive=verb,
        present=present,
        future=tuple(future + ending for ending in FUTURE_ENDINGS),
        past_participle=participle,
        etre=verb in WITH_ETRE,
    )
