"""An accelerator as ``stellwerk hardware --json`` prints it."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from stellwerk.hardware.catalog import source
from stellwerk.hardware.model import Accelerator, FactValue, Shape
from stellwerk.hardware.prices import listed_price


def to_json(acc: Accelerator) -> dict[str, Any]:
    """The accelerator as plain JSON values; unknown is None.

    The first nine keys are stable: name, kind, spellings, chips_per_host (all that occur, ascending), shapes,
    memory_gib, flops_bf16 (FLOP/s), price_per_chip_hour (USD, the choice of ``listed_price``), sources.
    """
    listed = listed_price(acc.name)
    return {
        "name": acc.name,
        "kind": acc.kind,
        "spellings": list(acc.spellings),
        "chips_per_host": list(acc.chips_per_host),
        "shapes": [_shape(shape) for shape in acc.shapes],
        "memory_gib": acc.memory_gib,
        "flops_bf16": acc.flops_bf16,
        "price_per_chip_hour": None if listed is None else listed.usd_per_chip_hour,
        "sources": [asdict(source(key)) for key in acc.sources],
        "vendor": acc.vendor,
        "domain": acc.domain,
        "facts": {
            fact.name: {"value": _plain(fact.value), "sources": list(fact.sources), "note": fact.note}
            for fact in acc.facts
        },
        "machines": [{**asdict(machine), **_lists(machine.topologies, machine.sources)} for machine in acc.machines],
        "gke_label_key": acc.gke_label_key,
        "gke_labels": list(acc.gke_labels),
        "resource": acc.resource,
        "ray_type": acc.ray_type,
        "ray_only": list(acc.ray_only),
        "price": None if listed is None else asdict(listed),
        "prices": [asdict(price) for price in acc.prices],
        "notes": list(acc.notes),
    }


def _lists(topologies: tuple[str, ...], sources: tuple[str, ...]) -> dict[str, list[str]]:
    return {"topologies": list(topologies), "sources": list(sources)}


def _plain(value: FactValue) -> object:
    return list(value) if isinstance(value, tuple) else value


def _shape(shape: Shape) -> dict[str, Any]:
    return {
        "topology": shape.topology,
        "chips": shape.chips,
        "hosts": shape.hosts,
        "machine": shape.machine,
        "multi_host": shape.multi_host,
        "chips_per_host": shape.chips_per_host,
        "wrap": list(shape.wrap) or None,
        "twist": shape.twist,
        "accelerator_type": shape.accelerator_type,
        "ray_pod_type": shape.ray_pod_type,
        "ray_valid": shape.ray_valid,
        "doubt": shape.doubt,
    }
