"""Placing an order, and looking at it."""

from __future__ import annotations

from django.db import transaction
from django.http import HttpRequest, JsonResponse
from django.shortcuts import get_object_or_404
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from skedulr.contrib.django import submit_on_commit

from .models import Order
from .tasks import send_receipt


@csrf_exempt
@require_POST
def place(request: HttpRequest) -> JsonResponse:
    with transaction.atomic():
        order = Order.objects.create(item=request.POST["item"])
        # The worker must find the order: the task is stored when that is.
        handle = submit_on_commit(send_receipt, order.pk)
    return JsonResponse({"order": order.pk, "task": handle.id}, status=202)


def show(request: HttpRequest, number: int) -> JsonResponse:
    order = get_object_or_404(Order, pk=number)
    return JsonResponse({"item": order.item, "state": order.state})
